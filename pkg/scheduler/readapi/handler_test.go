// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package readapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
)

// fixed is a source with fixed data.
type fixed struct {
	nodes []schedulerapi.Node
	pods  []schedulerapi.Pod
	err   error
	wait  chan struct{} // not nil: answers wait until it is closed
}

func (f fixed) Nodes(_ context.Context, name, after string, yield func(schedulerapi.Node) bool) error {
	if f.wait != nil {
		<-f.wait
	}
	for _, node := range f.nodes {
		if node.Name > after && (name == "" || node.Name == name) && !yield(node) {
			break
		}
	}
	return f.err
}

func (f fixed) Pods(_ context.Context, query PodQuery, yield func(schedulerapi.Pod) bool) error {
	for _, pod := range f.pods {
		if key(pod.Namespace, pod.Name) > query.After && (query.Name == "" || pod.Name == query.Name) && !yield(pod) {
			break
		}
	}
	return f.err
}

// two are two nodes and two pods.
var two = fixed{
	nodes: []schedulerapi.Node{{Name: "n1"}, {Name: "n2", Problem: "unreadable inventory"}},
	pods:  []schedulerapi.Pod{{Namespace: "a", Name: "p"}, {Namespace: "b", Name: "o"}},
}

var self = schedulerapi.Server{
	Instance: schedulerapi.Instance{Name: "cp1-10262", Leads: true}, Version: "v1",
	CompleteSince: time.Unix(1, 0).UTC(),
}

// me is a scheduler that describes itself like this.
type me schedulerapi.Server

func (m me) Server() schedulerapi.Server { return schedulerapi.Server(m) }

func newTestHandler(source Source) http.Handler {
	return NewHandler(Options{Source: source, Self: me(self)})
}

// call sends a request as a user.
func call(t *testing.T, handler http.Handler, who, method, target, body string) *httptest.ResponseRecorder {
	t.Helper()
	ctx := apirequest.WithUser(t.Context(), &user.DefaultInfo{Name: who})
	response := httptest.NewRecorder()
	handler.ServeHTTP(response, httptest.NewRequestWithContext(ctx, method, target, strings.NewReader(body)))
	return response
}

// get reads an object that must exist.
func get[T any](t *testing.T, handler http.Handler, target string) (got T) {
	t.Helper()
	response := call(t, handler, "alice", http.MethodGet, target, "")
	if err := json.Unmarshal(response.Body.Bytes(), &got); err != nil || response.Code != http.StatusOK {
		t.Fatalf("%s: status %d, %v: %s", target, response.Code, err, response.Body)
	}
	return got
}

func TestListsArePaged(t *testing.T) {
	handler := newTestHandler(two)
	for target, want := range map[string]schedulerapi.NodeList{
		schedulerapi.NodesPath:                           {Items: two.nodes},
		schedulerapi.NodesPath + "?limit=1":              {Items: two.nodes[:1], Continue: "n1"},
		schedulerapi.NodesPath + "?limit=1&continue=n1":  {Items: two.nodes[1:]},
		schedulerapi.NodesPath + "?limit=2":              {Items: two.nodes},
		schedulerapi.NodesPath + "?limit=99999":          {Items: two.nodes},
		schedulerapi.NodesPath + "?name=n2":              {Items: two.nodes[1:]},
		schedulerapi.NodesPath + "?continue=zz":          {Items: []schedulerapi.Node{}},
		schedulerapi.NodesPath + "?limit=1&continue=n09": {Items: two.nodes[:1], Continue: "n1"},
	} {
		want.Scheduler = self.Instance
		if diff := cmp.Diff(want, get[schedulerapi.NodeList](t, handler, target)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", target, diff)
		}
	}
	want := schedulerapi.PodList{Scheduler: self.Instance, Items: two.pods[:1], Continue: "a/p"}
	if diff := cmp.Diff(want, get[schedulerapi.PodList](t, handler, schedulerapi.PodsPath+"?limit=1")); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(self, get[schedulerapi.Server](t, handler, schedulerapi.ServerPath)); diff != "" {
		t.Errorf("server (-want +got):\n%s", diff)
	}
}

// Answers stay small with items of any size, and contain every item.
func TestLimitsTheSizeOfAnAnswer(t *testing.T) {
	var many fixed
	for i := range 20 {
		many.nodes = append(many.nodes, schedulerapi.Node{
			Name: fmt.Sprintf("n%02d", i), Problem: strings.Repeat("x", maxPage/8),
		})
	}
	handler := newTestHandler(many)
	seen, pages := 0, 0
	for after := "-"; after != ""; pages++ {
		list := get[schedulerapi.NodeList](t, handler, schedulerapi.NodesPath+"?continue="+after)
		if size := len(list.Items) * maxPage / 8; size > maxPage || len(list.Items) == 0 {
			t.Fatalf("an answer has %d nodes, %d bytes", len(list.Items), size)
		}
		seen, after = seen+len(list.Items), list.Continue
	}
	if seen != len(many.nodes) || pages != 3 {
		t.Errorf("%d nodes in %d answers", seen, pages)
	}
}

func TestErrorsAreAPIStatuses(t *testing.T) {
	broken, slow := fixed{err: errors.New("broken")}, fixed{err: context.DeadlineExceeded}
	for name, test := range map[string]struct {
		source         Source
		method, target string
		code           int
		says           string
	}{
		"a node that is not there":      {two, "GET", schedulerapi.NodesPath + "?name=x", 404, `no node called "x"`},
		"a pod that is not there":       {two, "GET", schedulerapi.PodsPath + "?namespace=a&name=x", 404, `called "x"`},
		"a pod without a namespace":     {two, "GET", schedulerapi.PodsPath + "?name=p", 400, "add namespace"},
		"another parameter":             {two, "GET", schedulerapi.NodesPath + "?node=n1", 400, `"node" is unknown`},
		"a parameter that stands twice": {two, "GET", schedulerapi.NodesPath + "?name=a&name=b", 400, "2 times"},
		"a limit that is none":          {two, "GET", schedulerapi.PodsPath + "?limit=0", 400, `limit "0"`},
		"a query that is none":          {two, "GET", schedulerapi.PodsPath + "?%zz", 400, "cannot read the query"},
		"another path":                  {two, "GET", schedulerapi.NodesPath + "/x", 404, schedulerapi.OpenAPIPath},
		"another method":                {two, "DELETE", schedulerapi.NodesPath, 405, "takes GET"},
		"a scheduler without placement": {two, "POST", schedulerapi.WhyPath, 404, "does not answer questions"},
		"a source that fails":           {broken, "GET", schedulerapi.NodesPath, 500, "broken"},
		"a source that takes too long":  {slow, "GET", schedulerapi.PodsPath, 504, "limit"},
	} {
		t.Run(name, func(t *testing.T) {
			response := call(t, newTestHandler(test.source), "alice", test.method, test.target, "")
			var status metav1.Status
			if err := json.Unmarshal(response.Body.Bytes(), &status); err != nil || status.Kind != "Status" ||
				response.Code != test.code || int(status.Code) != test.code || status.Reason == "" ||
				!strings.Contains(status.Message, test.says) {
				t.Errorf("status %d, %v: %s; want %d: %s", response.Code, err, response.Body, test.code, test.says)
			}
		})
	}
}

func TestServesNothingBeforeTheStateIsComplete(t *testing.T) {
	handler := NewHandler(Options{Source: two, Self: me{Instance: self.Instance}})
	for _, path := range []string{schedulerapi.NodesPath, schedulerapi.PodsPath} {
		response := call(t, handler, "alice", http.MethodGet, path, "")
		if response.Code != http.StatusServiceUnavailable || response.Header().Get("Retry-After") == "" {
			t.Errorf("%s: status %d: %s", path, response.Code, response.Body)
		}
	}
	if got := get[schedulerapi.Server](t, handler, schedulerapi.ServerPath); !got.CompleteSince.IsZero() {
		t.Errorf("%+v", got)
	}
}

// A user with too many requests gets 429; other users are served.
func TestLimitsTheRequestRateOfEachUser(t *testing.T) {
	handler := newTestHandler(two)
	var put *httptest.ResponseRecorder
	answered := 0
	for ; answered < 10*burst; answered++ {
		if put = call(t, handler, "alice", http.MethodGet, schedulerapi.ServerPath, ""); put.Code != http.StatusOK {
			break
		}
	}
	if put.Code != http.StatusTooManyRequests || put.Header().Get("Retry-After") != "1" || answered < burst {
		t.Errorf("after %d answers: status %d, %v: %s", answered, put.Code, put.Header(), put.Body)
	}
	if bob := call(t, handler, "bob", http.MethodGet, schedulerapi.ServerPath, ""); bob.Code != http.StatusOK {
		t.Errorf("bob gets status %d", bob.Code)
	}
}

func TestLimitsConcurrentAnswers(t *testing.T) {
	slow := two
	slow.wait = make(chan struct{})
	handler := newTestHandler(slow)
	answers := make(chan int)
	for i := range maxConcurrent + 1 {
		go func() {
			answers <- call(t, handler, fmt.Sprint(i), http.MethodGet, schedulerapi.NodesPath, "").Code
		}()
	}
	if code := <-answers; code != http.StatusTooManyRequests { // the only one that does not wait
		t.Errorf("one too many gets status %d", code)
	}
	close(slow.wait)
	for range maxConcurrent {
		if code := <-answers; code != http.StatusOK {
			t.Errorf("one of those that fit gets status %d", code)
		}
	}
}

// Another handler answers questions about placement, within the same limits.
func TestPlacementObeysTheBounds(t *testing.T) {
	var received string
	size := 10
	handler := NewHandler(Options{
		Source: two, Self: me(self),
		Placement: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			received = r.Method + " " + r.URL.Path
			if _, err := fmt.Fprint(w, strings.Repeat("x", size)); err != nil {
				return
			}
		}),
	})
	for _, path := range []string{schedulerapi.WhyPath, schedulerapi.FitPath, schedulerapi.WhatIfPath} {
		response := call(t, handler, "alice", http.MethodPost, path, "{}")
		if response.Code != http.StatusOK || response.Body.Len() != size || received != "POST "+path {
			t.Errorf("%s: status %d, received %q", path, response.Code, received)
		}
	}
	large := strings.Repeat("x", maxRequest+1)
	if response := call(t, handler, "alice", http.MethodPost, schedulerapi.WhyPath, large); response.Code !=
		http.StatusRequestEntityTooLarge {
		t.Errorf("a large request: status %d", response.Code)
	}
	size = maxAnswer + 1
	if response := call(t, handler, "alice", http.MethodPost, schedulerapi.WhyPath, "{}"); response.Code !=
		http.StatusInternalServerError || response.Body.Len() > 1000 {
		t.Errorf("a large answer: status %d, %d bytes", response.Code, response.Body.Len())
	}
}
