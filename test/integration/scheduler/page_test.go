// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubedevice/kubedevice/pkg/scheduler/devicepage"
	"github.com/kubedevice/kubedevice/test/kube"
)

// viewerRole is what administrators apply.
const viewerRole = "../../../deploy/rbac/kubedevice-devices-viewer.yaml"

// freePort returns a port that nobody listened on a moment ago.
func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

// reader reads the page of devices as one user.
type reader struct {
	*testing.T
	client *http.Client
	url    string
}

// newReader returns a reader for a user who shows a certificate, or for an anonymous one.
func newReader(t *testing.T, port int, user string, groups ...string) reader {
	t.Helper()
	config := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // the scheduler made its certificate itself
	if user != "" {
		client, err := server.Client(user, groups...)
		if err != nil {
			t.Fatal(err)
		}
		pair, err := tls.X509KeyPair(client.Config.CertData, client.Config.KeyData)
		if err != nil {
			t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	transport := &http.Transport{TLSClientConfig: config}
	t.Cleanup(transport.CloseIdleConnections)
	return reader{t, &http.Client{Transport: transport}, fmt.Sprintf("https://127.0.0.1:%d", port)}
}

// get returns the status and the text of a page, as soon as there is a server.
func (r reader) get(page string) (int, string) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+page, nil)
		if err != nil {
			r.Fatal(err)
		}
		response, err := r.client.Do(request)
		if err == nil {
			defer response.Body.Close()
			text, err := io.ReadAll(response.Body)
			if err != nil {
				r.Fatal(err)
			}
			return response.StatusCode, string(text)
		}
		select {
		case <-ctx.Done():
			r.Fatal(err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// await reads a page until it is the one that is wanted: rights and nodes reach the scheduler in
// their own time.
func (r reader) await(page, want string) {
	r.Helper()
	var status int
	var got string
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if status, got = r.get(page); status == http.StatusOK && got == want {
			return
		}
	}
	r.Errorf("%s: status %d (-want +got):\n%s", page, status, cmp.Diff(want, got))
}

// viewer lets a user see the page.
func (c *cluster) viewer(user string) {
	c.Helper()
	text, err := os.ReadFile(viewerRole)
	if err != nil {
		c.Fatal(err)
	}
	role := &rbacv1.ClusterRole{}
	if err := yaml.UnmarshalStrict(text, role); err != nil {
		c.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	}
	if _, err := c.RbacV1().ClusterRoles().Create(c.Context(), role, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
	if _, err := c.RbacV1().ClusterRoleBindings().Create(c.Context(), binding, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() {
		ctx := context.Background() // the test's has ended
		if err := errors.Join(
			c.RbacV1().ClusterRoleBindings().Delete(ctx, binding.Name, metav1.DeleteOptions{}),
			c.RbacV1().ClusterRoles().Delete(ctx, role.Name, metav1.DeleteOptions{}),
		); err != nil {
			c.Error(err)
		}
	})
}

func TestThePageOfDevicesIsForThoseWhoMaySeeIt(t *testing.T) {
	c := newCluster(t)
	c.node("n1", 2)
	c.viewer("viewer")
	port := freePort(t)
	startSchedulerWith(t, []string{fmt.Sprintf("--devices-secure-port=%d", port), "--bind-address=127.0.0.1"})
	c.schedule(newPod("p", 1))

	for user, want := range map[string]int{"": http.StatusForbidden, "somebody": http.StatusForbidden} {
		if status, text := newReader(t, port, user).get("/debug/devices"); status != want ||
			strings.Contains(text, "gpu") {
			t.Errorf("user %q: status %d, want %d: %s", user, status, want, text)
		}
	}

	viewer := newReader(t, port, "viewer")
	viewer.await("/debug/devices", ""+
		"n1:\n"+
		"  gpugrp1/0/gpugrp0/0/gpu/n1-gpu-0  cards   0 of 1 used            \n"+
		"  gpugrp1/0/gpugrp0/0/gpu/n1-gpu-0  memory  0 of 80 GiB used       \n"+
		"  gpugrp1/0/gpugrp0/0/gpu/n1-gpu-1  cards   1 of 1 used            default/p\n"+
		"  gpugrp1/0/gpugrp0/0/gpu/n1-gpu-1  memory  80 GiB of 80 GiB used  \n")
	if status, _ := viewer.get("/metrics"); status != http.StatusForbidden {
		t.Errorf("the viewer gets status %d for what is not hers", status)
	}
	if status, text := newReader(t, port, "admin").get("/debug/devices"); status != http.StatusForbidden {
		t.Errorf("a user called admin, who is in no group, gets status %d: %s", status, text)
	}
}

func TestThePageOfDevicesSaysWhereAPodFits(t *testing.T) {
	c := newCluster(t)
	c.node("n1", 2)
	c.node("n2", 4)
	c.node("cpu", 0)
	c.viewer("viewer")
	port := freePort(t)
	startSchedulerWith(t, []string{fmt.Sprintf("--devices-secure-port=%d", port), "--bind-address=127.0.0.1"})
	c.schedule(newPod("a", 4))
	waiting := newPod("b", 2)
	waiting.Spec.NodeSelector = map[string]string{"no": "node"}
	c.await(c.create(waiting), "to be found unschedulable", kube.Unschedulable)

	viewer := newReader(t, port, "viewer")
	viewer.await("/debug/devices?pod=default/b", ""+
		"default/b: the devices of 1 of 3 nodes fit\n"+
		"  cpu  does not fit  cannot serve container \"main\": too few GPUs for 2 of nvidia.com/gpu; evicting pods "+
		"could help\n"+
		"  n1   fits          score 0.50\n"+
		"  n2   does not fit  fewer than 2 free GPUs (best: 0 free of 4); evicting pods could help\n")
	viewer.await("/debug/devices?pod=default/a", "default/a is bound to node n2: see ?node=n2\n")

	var page struct{ Nodes []devicepage.Node }
	_, text := viewer.get("/debug/devices?node=n2&output=json")
	if err := json.Unmarshal([]byte(text), &page); err != nil {
		t.Fatal(err)
	}
	for _, device := range page.Nodes[0].Devices {
		if cards := device.Resources[0]; cards.Used != 1 || len(cards.Holders) != 1 ||
			cards.Holders[0].Pod != "default/a" || cards.Holders[0].Reserved {
			t.Errorf("%s: %+v", device.Name, cards)
		}
	}
}
