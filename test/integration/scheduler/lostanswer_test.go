// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kubedevice/kubedevice/test/kube"
)

// line is what a scheduler reaches the API server through. It can do something to the next binding,
// once.
type line struct {
	next atomic.Pointer[func(http.ResponseWriter, func())]
}

// newLine returns a line for the scheduler's user, and how it is reached.
func newLine(t *testing.T) (*line, *rest.Config) {
	t.Helper()
	client, err := server.Client("system:kube-scheduler")
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(client.Config)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(client.Config.Host)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport, proxy.FlushInterval = transport, -1
	l := &line{}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/binding") {
			if happens := l.next.Swap(nil); happens != nil {
				(*happens)(w, func() { proxy.ServeHTTP(httptest.NewRecorder(), r) })
				return
			}
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		front.CloseClientConnections() // watches have no end of their own
		front.Close()
	})
	return l, &rest.Config{Host: front.URL}
}

// onNextBinding says what happens to the next binding; pass sends it to the API server and drops
// the answer.
func (l *line) onNextBinding(happens func(w http.ResponseWriter, pass func())) {
	l.next.Store(&happens)
}

const lostAnswer = `{"kind":"Status","apiVersion":"v1","status":"Failure",` +
	`"message":"no answer in time","reason":"Timeout","code":504}`

// The scheduler does not learn what became of a binding. In each case, the pod ends with one
// device, no other pod has that one, and when both pods are gone both devices are free.
func TestABindingWithoutAnAnswerNeitherLosesADeviceNorGivesItTwice(t *testing.T) {
	l, variant := newLine(t)
	scheduler := startSchedulerAt(t, variant, nil)
	t.Cleanup(scheduler.kill) // before its line goes
	for name, happens := range map[string]func(http.ResponseWriter, func()){
		"it took effect, and the connection broke": func(_ http.ResponseWriter, pass func()) {
			pass()
			panic(http.ErrAbortHandler)
		},
		"it took effect, and the answer is a timeout": func(w http.ResponseWriter, pass func()) {
			pass()
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusGatewayTimeout)
			_, _ = io.WriteString(w, lostAnswer) // the scheduler is there
		},
		"it was lost on its way": func(http.ResponseWriter, func()) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.node("n1", 2)
			l.onNextBinding(happens)
			unsure := c.create(newPod("unsure", 1))
			other := c.schedule(newPod("other", 1))
			unsure = c.await(unsure, "to be bound", kube.Scheduled)
			c.check()
			if l.next.Load() != nil {
				t.Error("no binding was lost")
			}
			for _, pod := range []string{unsure.Name, other.Name} {
				if err := c.CoreV1().Pods(metav1.NamespaceDefault).Delete(t.Context(), pod,
					metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			c.schedule(newPod("both", 2))
		})
	}
}
