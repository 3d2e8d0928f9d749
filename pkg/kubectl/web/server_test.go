// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/kubedevice/kubedevice/pkg/kubectl/cluster"
)

// streams is a client whose watches are plain ones: fakes do not list by watching.
type streams struct{ corev1client.CoreV1Interface }

func (streams) IsWatchListSemanticsUnSupported() bool { return true }

// fixture is a server that runs until its test ends.
type fixture struct {
	*Server
	t         *testing.T
	client    *fake.Clientset
	scheduler *scheduler
	browser   *http.Client
	base      string
}

func newFixture(t *testing.T, objects ...runtime.Object) *fixture {
	t.Helper()
	ignored := goleak.IgnoreCurrent()
	f := &fixture{t: t, client: fake.NewClientset(objects...), scheduler: &scheduler{}}
	page := fstest.MapFS{"index.html": {Data: []byte("<title>map</title>")}, "app.js": {Data: []byte("0")}}
	var err error
	f.Server, err = Listen("127.0.0.1:0", page, &cluster.Reader{Client: streams{f.client.CoreV1()}},
		f.scheduler.connect)
	if err != nil {
		t.Fatal(err)
	}
	f.browser = &http.Client{Transport: &http.Transport{}}
	f.base = "http://" + f.listener.Addr().String()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the server ends with %v", err)
		}
		f.browser.CloseIdleConnections()
		goleak.VerifyNone(t, ignored)
	})
	return f
}

// withKey is the header field of the page's requests.
func (f *fixture) withKey() []string { return []string{"Authorization", "Bearer " + f.guard.key} }

// keyOf returns the key of an address.
func (f *fixture) keyOf(address string) string {
	f.t.Helper()
	base, key, ok := strings.Cut(address, "/#token=")
	if !ok || base != f.base {
		f.t.Fatalf("the address is %s", address)
	}
	return key
}

// get sends a request with header fields, and returns the answer and its text.
func (f *fixture) get(url string, header ...string) (*http.Response, string) {
	f.t.Helper()
	request, err := http.NewRequestWithContext(f.t.Context(), http.MethodGet, url, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		if request.Header.Set(header[i], header[i+1]); header[i] == "Host" {
			request.Host = header[i+1]
		}
	}
	answer, err := f.browser.Do(request)
	if err != nil {
		f.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return answer, string(text)
}

// want fails the test unless a request is answered with a status.
func (f *fixture) want(what string, status int, url string, header ...string) {
	f.t.Helper()
	if answer, text := f.get(url, header...); answer.StatusCode != status {
		f.t.Errorf("%s: %s, want %d: %s", what, answer.Status, status, text)
	}
}

// data are the paths with what the cluster has.
var data = []string{
	"/stream", "/events?node=n", "/why?namespace=default&name=p",
	"/whatif?namespace=default&name=p&change=like:n",
}

func TestOnlyThePageThatHasTheKeyIsServed(t *testing.T) {
	f := newFixture(t)
	for _, path := range append(data, "/key", "/other") {
		f.want("without the key, "+path, http.StatusForbidden, f.base+path)
		f.want("with another key, "+path, http.StatusForbidden, f.base+path, "Authorization", "Bearer x")
		f.want("with no key, "+path, http.StatusForbidden, f.base+path, "Authorization", "Bearer ")
		f.want("with the key as a cookie and in the address, "+path, http.StatusForbidden,
			f.base+path+"?token="+f.guard.key, "Cookie", "token="+f.guard.key)
	}
	for _, path := range data[1:] { // the stream does not end
		f.want("with the key, "+path, http.StatusOK, f.base+path,
			append(f.withKey(), "Sec-Fetch-Site", "same-origin")...)
	}
	f.want("a port that is forwarded", http.StatusOK, f.base+"/events?node=n",
		append(f.withKey(), "Host", "localhost:8080", "Origin", "http://localhost:8080")...)
	for _, header := range [][]string{
		{"Host", "evil.example"},
		{"Host", "127.0.0.1.evil.example"},
		{"Host", "10.0.0.1"},
		{"Origin", "http://evil.example"},
		{"Origin", "null"},
		{"Origin", "http://127.0.0.1:1"},
		{"Sec-Fetch-Site", "cross-site"},
		{"Sec-Fetch-Site", "same-site"}, // another port of this machine
	} {
		for _, path := range append(data, "/key") {
			f.want(strings.Join(header, ": ")+" with the key, "+path, http.StatusForbidden, f.base+path,
				append(f.withKey(), header...)...)
		}
	}
	answer, err := f.browser.Post(f.base+"/", "text/plain", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %s", answer.Status)
	}
}

func TestTheKeyIsInTheAddressAloneAndNoBrowserSendsIt(t *testing.T) {
	f := newFixture(t)
	for _, path := range []string{"/", "/app.js"} {
		answer, text := f.get(f.base + path)
		if answer.StatusCode != http.StatusOK || strings.Contains(text, f.guard.key) || len(answer.Cookies()) > 0 {
			t.Errorf("%s without the key: %s, cookies %v: %s", path, answer.Status, answer.Cookies(), text)
		}
	}
	f.want("the page for a foreign host", http.StatusForbidden, f.base, "Host", "evil.example")
	if _, text := f.get(f.base+"/key", "Authorization", "Bearer "+f.keyOf(f.URL())); text != f.guard.key {
		t.Errorf("the key of the address that is printed is exchanged for %q", text)
	}
}

func TestTheAddressForABrowserThatIsStartedOpensTheMapOnce(t *testing.T) {
	f := newFixture(t)
	once := []string{"Authorization", "Bearer " + f.keyOf(f.OnceURL())}
	f.want("as the key itself", http.StatusForbidden, f.base+"/events?node=n", once...)
	if _, text := f.get(f.base+"/key", once...); text != f.guard.key {
		t.Errorf("it is exchanged for %q", text)
	}
	f.want("again", http.StatusForbidden, f.base+"/key", once...)
}

// Who else is on the machine can read the address in the arguments of what starts the browser.
func TestTheAddressForABrowserThatIsStartedIsOfNoUseToOthers(t *testing.T) {
	f := newFixture(t)
	var addresses []string
	other := true
	f.guard.ofUser = func(from, to string) bool {
		addresses = append(addresses, from, to)
		return !other
	}
	once := []string{"Authorization", "Bearer " + f.keyOf(f.OnceURL())}
	f.want("of another user", http.StatusForbidden, f.base+"/key", once...)
	other = false
	f.want("of this one afterwards", http.StatusOK, f.base+"/key", once...)
	if len(addresses) != 4 ||
		!strings.HasPrefix(addresses[0], "127.0.0.1:") || "http://"+addresses[1]+"/" != f.base+"/" {
		t.Errorf("the user of %q is looked up", addresses)
	}
}

func TestThePageMayLoadNothingFromElsewhere(t *testing.T) {
	f := newFixture(t)
	answer, _ := f.get(f.base)
	policy := answer.Header.Get("Content-Security-Policy")
	for _, part := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'",
		"frame-ancestors 'none'"} {
		if !strings.Contains(policy+";", part+";") {
			t.Errorf("the policy lacks %q: %s", part, policy)
		}
	}
	if strings.Contains(policy, "unsafe") || strings.Contains(policy, "*") || strings.Contains(policy, "http") {
		t.Errorf("the policy is %s", policy)
	}
	for name, want := range map[string]string{
		"Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store",
	} {
		if got := answer.Header.Get(name); got != want {
			t.Errorf("%s is %q", name, got)
		}
	}
}

func TestOtherMachinesAreNotListenedTo(t *testing.T) {
	for _, address := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:0", "example.com:0"} {
		if _, err := Listen(address, nil, nil, nil); err == nil || !strings.Contains(err.Error(), "127.0.0.1") {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// follow returns the messages of a stream.
func (f *fixture) follow(ctx context.Context) func() message {
	f.t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, f.base+"/stream", nil)
	if err != nil {
		f.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+f.guard.key)
	answer, err := f.browser.Do(request)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { answer.Body.Close() })
	if kind := answer.Header.Get("Content-Type"); kind != "text/event-stream" {
		f.t.Errorf("the stream is %q", kind)
	}
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	return func() (m message) {
		f.t.Helper()
		for lines.Scan() {
			if text, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				if err := json.Unmarshal([]byte(text), &m); err != nil {
					f.t.Fatal(err)
				}
				return m
			}
		}
		f.t.Fatalf("the stream ends: %v", lines.Err())
		return m
	}
}

func TestAStreamHasTheClusterAndWhatChanges(t *testing.T) {
	f := newFixture(t, nodeOf(t, "n", 2), podOf(t, "waits", "", 0))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	next := f.follow(ctx)
	if m := next(); !m.Reset || !m.Complete || len(m.Nodes) != 1 || len(m.Pods) != 1 {
		t.Errorf("the snapshot is %+v", m)
	}
	bound := podOf(t, "waits", "n", 1)
	if _, err := f.client.CoreV1().Pods("default").Update(ctx, bound, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	m := next()
	if m.Reset || len(m.Nodes) != 1 || !strings.Contains(string(m.Nodes[0]), `"pod":"waits"`) || len(m.GonePods) != 1 {
		t.Errorf("the change is %+v", m)
	}
	if err := f.client.CoreV1().Nodes().Delete(ctx, "n", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if m := next(); len(m.GoneNodes) != 1 {
		t.Errorf("the change is %+v", m)
	}
}

func TestEventsAreThoseOfOnePodOrNodeNewestFirst(t *testing.T) {
	event := func(name string, minute int) *corev1.Event {
		return &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: "default", Name: name},
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "p", UID: "uid-p"},
			Reason:         name, LastTimestamp: metav1.NewTime(time.Unix(int64(60*minute), 0)),
		}
	}
	f := newFixture(t, event("older", 1), event("newer", 2))
	answer, text := f.get(f.base+"/events?namespace=default&uid=uid-p", f.withKey()...)
	var list []seen
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatalf("%s: %v", answer.Status, err)
	}
	if len(list) != 2 || list[0].Reason != "newer" {
		t.Errorf("events: %+v", list)
	}
	f.want("of nothing", http.StatusBadRequest, f.base+"/events?namespace=default", f.withKey()...)
}
