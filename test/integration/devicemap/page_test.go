// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemap

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubedevice/kubedevice/test/browser"
)

// begin returns a context that ends before the test must.
func begin(t *testing.T) context.Context {
	t.Helper()
	deadline, ok := t.Deadline()
	if !ok {
		deadline = time.Now().Add(10 * time.Minute)
	}
	ctx, cancel := context.WithDeadline(t.Context(), deadline.Add(-10*time.Second))
	t.Cleanup(cancel)
	return ctx
}

// readerConfig writes the kubeconfig of a user who may read what the map shows.
func readerConfig(ctx context.Context, t *testing.T) string {
	t.Helper()
	const name = "kubedevice-viewer"
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"nodes", "pods", "events"},
		Verbs: []string{"get", "list", "watch"},
	}}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "alice"}},
	}
	rbac := server.Admin.RbacV1()
	_, err := rbac.ClusterRoles().Create(ctx, role, metav1.CreateOptions{})
	if err == nil {
		_, err = rbac.ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	awaitRight(ctx, t, "alice", authorizationv1.ResourceAttributes{Verb: "watch", Resource: "nodes"})
	return kubeconfig(t, "alice")
}

// awaitRight waits until a user may do something.
func awaitRight(ctx context.Context, t *testing.T, user string, right authorizationv1.ResourceAttributes) {
	t.Helper()
	client, err := server.Admin.As(user)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.AwaitRights(ctx, right); err != nil {
		t.Fatal(err)
	}
}

// clusterName is what the users' kubeconfigs call the cluster.
const clusterName = "training"

// kubeconfig writes that of a user.
func kubeconfig(t *testing.T, user string) string {
	t.Helper()
	client, err := server.Client(user)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	config := clientcmdapi.NewConfig()
	config.Clusters[clusterName] = &clientcmdapi.Cluster{
		Server: client.Config.Host, CertificateAuthorityData: client.Config.CAData,
	}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{
		ClientCertificateData: client.Config.CertData, ClientKeyData: client.Config.KeyData,
	}
	config.Contexts["context"] = &clientcmdapi.Context{Cluster: clusterName, AuthInfo: user}
	config.CurrentContext = "context"
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// serve starts kubectl device web, and returns the address that it prints, and its process.
func serve(ctx context.Context, t *testing.T, more ...string) (url string, pid int) {
	t.Helper()
	command := exec.Command(program, append([]string{
		"web", "--open=false", "--kubeconfig=" + readerConfig(ctx, t),
	}, more...)...)
	command.Stderr = os.Stderr
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatalf("kubectl device web prints no address: %v", lines.Err())
	}
	t.Cleanup(func() {
		if err := command.Process.Signal(os.Interrupt); err != nil {
			t.Error(err)
		}
		if err := command.Wait(); err != nil {
			t.Errorf("kubectl device web after an interruption: %v", err)
		}
	})
	return lines.Text(), command.Process.Pid
}

// tile is an expression for the device with this number of a node that is in sight.
func tile(node string, gpu int) string {
	return fmt.Sprintf(`document.querySelectorAll('[role=listitem][aria-label^="%s,"] .tile')[%d]`, node, gpu)
}

// chip is an expression for the part of the legend that shows devices in one state alone.
func chip(state string) string {
	return fmt.Sprintf(`[...document.querySelectorAll('.chip')].find(c => c.innerText.endsWith(%q))`, state)
}

// open opens the map in a browser of its own, of this size in CSS pixels.
func open(ctx context.Context, t *testing.T, url string, width, height int64) *browser.Page {
	t.Helper()
	return browser.Open(ctx, t, chromium, url, width, height)
}

// picture takes a picture for the documents, if that is requested, and one in the dark.
func picture(p *browser.Page, name string) {
	if *rewrite {
		p.Do("leave the keyboard", chromedp.Evaluate[chromedp.Void]("document.activeElement.blur()"))
		p.Picture(filepath.Join(root, "docs", "images", name))
	}
}
