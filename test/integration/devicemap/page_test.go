// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemap

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// limit is how long the map may take to show something; a story takes seconds on a quiet machine.
const limit = time.Minute

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
	client, err := server.Client("alice")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{
		Server: client.Config.Host, CertificateAuthorityData: client.Config.CAData,
	}
	config.AuthInfos["alice"] = &clientcmdapi.AuthInfo{
		ClientCertificateData: client.Config.CertData, ClientKeyData: client.Config.KeyData,
	}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "alice"}
	config.CurrentContext = "c"
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// serve starts kubectl device web, and returns the address that it prints.
func serve(ctx context.Context, t *testing.T) string {
	t.Helper()
	command := exec.Command(program, "web", "--open=false", "--kubeconfig", readerConfig(ctx, t))
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
	return lines.Text()
}

// page is the map in a browser.
type page struct {
	t    *testing.T
	ctx  context.Context
	base string // of the address, without what is in the query

	mu    sync.Mutex
	wrong []string // errors on the console, violations of the policy, requests to others
}

// open opens an address in a browser of its own, of this size in CSS pixels.
func open(ctx context.Context, t *testing.T, url string, width, height int64) *page {
	t.Helper()
	base, _, _ := strings.Cut(url, "?")
	p := &page{t: t, base: base}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium), chromedp.NoSandbox,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-domain-reliability", true), chromedp.WSURLReadTimeout(limit))
	allocated, stop := chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(stop)
	var cancel context.CancelFunc
	p.ctx, cancel = chromedp.NewContext(allocated)
	t.Cleanup(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, text := range p.wrong {
			t.Errorf("the browser reports: %s", text)
		}
		cancel()
	})
	if err := chromedp.Listen(p.ctx, p.listen); err != nil { // it starts the browser
		t.Fatal(err)
	}
	p.do("open the map", command(log.Enable, cdp.Empty{}), command(network.Enable, network.EnableParams{}),
		chromedp.EmulateViewport(width, height, chromedp.EmulateScale(1.25)), chromedp.Navigate(url))
	return p
}

// command returns an action that is one command of the protocol.
func command[P, R any](of cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, of, params)
		return err
	})
}

// listen keeps what must not be.
func (p *page) listen(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch event := event.(type) {
	case *runtime.EventExceptionThrown:
		p.wrong = append(p.wrong, fmt.Sprintf("%+v", event.ExceptionDetails))
	case *log.EventEntryAdded:
		if event.Entry.Level == log.EntryLevelError || event.Entry.Level == log.EntryLevelWarning {
			p.wrong = append(p.wrong, event.Entry.Text+" "+event.Entry.URL)
		}
	case *network.EventRequestWillBeSent:
		if url := event.Request.URL; !strings.HasPrefix(url, p.base) {
			p.wrong = append(p.wrong, "a request to "+url)
		}
	}
}

// do runs actions of chromedp.
func (p *page) do(what string, actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, limit)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		p.t.Fatalf("%s: %v", what, err)
	}
}

// value returns what an expression in JavaScript, or the promise that it is, comes to.
func value[T any](p *page, expression string) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, limit)
	defer cancel()
	result, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
	return result
}

// await waits until a condition in JavaScript holds.
func (p *page) await(what, condition string) {
	p.t.Helper()
	for end := time.Now().Add(limit); !value[bool](p, "Boolean("+condition+")"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("%s: after %v the page shows\n%.3000s", what, limit, value[string](p, "document.body.innerText"))
		}
	}
}

// tile is an expression for the device with this number of a node that is in sight.
func tile(node string, gpu int) string {
	return fmt.Sprintf(`document.querySelectorAll('[role=listitem][aria-label^="%s,"] button')[%d]`, node, gpu)
}

// click clicks on what an expression finds.
func (p *page) click(expression string) {
	p.t.Helper()
	p.do("click on "+expression, chromedp.Evaluate[chromedp.Void](expression+".click()"))
}

// picture takes a picture for the documents, if that is requested, and one in the dark.
func (p *page) picture(name string) {
	p.t.Helper()
	if !*rewrite {
		return
	}
	for _, scheme := range []string{"light", "dark"} {
		p.do("choose colours", scheming(scheme), chromedp.Sleep(500*time.Millisecond)) // colours change slowly
		ctx, cancel := context.WithTimeout(p.ctx, limit)
		image, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
		cancel()
		file := filepath.Join(root, "docs", "images", name+map[string]string{"dark": "-dark"}[scheme]+".png")
		if err := errors.Join(err, os.WriteFile(file, image, 0o644)); err != nil {
			p.t.Fatal(err)
		}
	}
	p.do("be light again", scheming("light"))
}

func scheming(scheme string) chromedp.Action[chromedp.Void] {
	return command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
}
