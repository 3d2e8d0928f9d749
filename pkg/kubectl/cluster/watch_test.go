// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apitypes "k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	clienttesting "k8s.io/client-go/testing"
)

// streams is a client whose watches are plain ones: fakes do not list by watching.
type streams struct{ corev1client.CoreV1Interface }

func (streams) IsWatchListSemanticsUnSupported() bool { return true }

// connection is one to an API server that is not there, in a bubble of synctest.
type connection struct {
	client *fake.Clientset

	mu      sync.Mutex
	broken  error // of new lists and watches, if it is not nil
	watches []*watch.FakeWatcher
}

// connect connects to a server with these objects, whose watches say nothing by themselves.
func connect(t *testing.T, objects ...runtime.Object) *connection {
	handlers := utilruntime.ErrorHandlers // one sleeps, by a time that it may have from outside of the bubble
	utilruntime.ErrorHandlers = nil
	t.Cleanup(func() { utilruntime.ErrorHandlers = handlers })
	c := &connection{client: fake.NewClientset(objects...)}
	c.client.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.broken != nil, nil, c.broken
	})
	c.client.PrependWatchReactor("*", func(clienttesting.Action) (bool, watch.Interface, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.broken != nil {
			return true, nil, c.broken
		}
		c.watches = append(c.watches, watch.NewFake())
		return true, c.watches[len(c.watches)-1], nil
	})
	return c
}

// cut ends all watches, and lets more time pass than there is between two tries. New lists and
// watches fail, if err is not nil.
func (c *connection) cut(err error) {
	c.mu.Lock()
	c.broken = err
	for _, w := range c.watches {
		w.Stop()
	}
	c.watches = nil
	c.mu.Unlock()
	time.Sleep(2 * time.Minute)
	synctest.Wait()
}

// watch watches all nodes and pods until the test ends.
func (c *connection) watch(t *testing.T, changed func([]Change) error, reads func(error)) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- (&Reader{Client: streams{c.client.CoreV1()}}).Watch(ctx, &Query{}, &Query{}, changed, reads)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the watch ends with %v", err)
		}
	})
	time.Sleep(time.Second)
	synctest.Wait()
}

func TestARecreatedPodIsADifferentPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := func(uid apitypes.UID) *corev1.Pod {
			return &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: uid},
				Spec:       corev1.PodSpec{NodeName: "n"},
			}
		}
		c := connect(t, pod("first"))
		var state State
		c.watch(t, func(changes []Change) error { state.Apply(changes); return nil }, nil)
		on := func() (uids []apitypes.UID) {
			_, pods := state.Node("n")
			for _, pod := range pods {
				uids = append(uids, pod.UID)
			}
			return uids
		}
		if got := on(); !slices.Equal(got, []apitypes.UID{"first"}) {
			t.Fatalf("at first there are %v", got)
		}
		pods := c.client.CoreV1().Pods("default")
		if err := pods.Delete(t.Context(), "p", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := pods.Create(t.Context(), pod("second"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		c.cut(apierrors.NewUnauthorized("the token has expired"))
		c.cut(nil)
		if got := on(); !slices.Equal(got, []apitypes.UID{"second"}) {
			t.Errorf("after it was made again there are %v", got)
		}
	})
}

func TestLostAndRestoredConnectionsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := connect(t)
		var last error
		c.watch(t, func([]Change) error { return nil }, func(err error) { last = err })
		if last != nil {
			t.Errorf("while all is read: %v", last)
		}
		c.cut(apierrors.NewUnauthorized("the token has expired"))
		if !apierrors.IsUnauthorized(last) {
			t.Errorf("after the token has expired: %v", last)
		}
		if c.cut(nil); last != nil {
			t.Errorf("with another token: %v", last)
		}
		if c.cut(apierrors.NewResourceExpired("too old")); last != nil {
			t.Errorf("when the objects have to be listed again: %v", last)
		}
	})
}
