// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/kubedevice/kubedevice/pkg/node/pods"
)

func TestListsTheDevicesOfAPodThatHasNotStarted(t *testing.T) {
	n := newNode(t)
	n.claims("u1", "train", map[string][]string{"main": {gpu0}})
	n.pods.list["u2"] = pods.Pod{Namespace: "default", Name: "ended", Allocation: "{}", Ended: true}
	n.pods.list["u3"] = pods.Pod{Namespace: "default", Name: "plain"}
	n.pods.list["u4"] = pods.Pod{
		Namespace: "default", Name: "deleted", Allocation: "{}", Failure: pods.Failure{Terminating: true},
	}
	n.kubelet.lists(pod("train", "main", "side"))
	n.serve()

	want := holding(pod("train", "main", "side"), dev("nvidia.com/gpu", "GPU-0", 0))
	if diff := cmp.Diff([]*podresourcesapi.PodResources{want}, n.list(), protocmp.Transform()); diff != "" {
		t.Errorf("List (-want +got):\n%s", diff)
	}
	got, err := n.get("train")
	if diff := cmp.Diff(want, got, protocmp.Transform()); err != nil || diff != "" {
		t.Errorf("Get: %v (-want +got):\n%s", err, diff)
	}
	alpha, err := n.alphaList(t.Context())
	if err != nil || len(alpha) != 1 || len(alpha[0].GetContainers()[0].GetDevices()) != 1 {
		t.Errorf("List of the old version: %v, %v", alpha, err)
	}
	for _, queried := range n.pending.queried {
		if !slices.Equal(queried, []string{"u1"}) {
			t.Errorf("the claims of %q were read, want those of u1", queried)
		}
	}
}

// Other pods may hold what a pod claims.
func TestListsNoClaimsUntilAllGrantsAreKnown(t *testing.T) {
	n := newNode(t)
	n.claims("u1", "train", map[string][]string{"main": {gpu0}})
	n.incomplete = true
	n.kubelet.lists(pod("train", "main"))
	n.serve()
	want := []*podresourcesapi.PodResources{pod("train", "main")}
	if diff := cmp.Diff(want, n.list(), protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWaitsForAPodThatTheKubeletKnowsFirst(t *testing.T) {
	for name, query := range map[string]func(*node) (*podresourcesapi.PodResources, error){
		"List": func(n *node) (*podresourcesapi.PodResources, error) { return n.list()[0], nil },
		"Get":  func(n *node) (*podresourcesapi.PodResources, error) { return n.get("train") },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.kubelet.lists(pod("train", "main"))
			n.pods.synced = true
			n.pods.delivers = func() { n.claims("u1", "train", map[string][]string{"main": {gpu0}}) }
			n.serve()
			got, err := query(n)
			want := holding(pod("train", "main"), dev("nvidia.com/gpu", "GPU-0", 0))
			if diff := cmp.Diff(want, got, protocmp.Transform()); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestDoesNotWaitForPodsBeforeTheAPIServerHasListedThem(t *testing.T) {
	n := newNode(t)
	n.kubelet.lists(pod("train", "main"))
	n.serve()
	n.list()
	if n.pods.answers != 1 {
		t.Errorf("the pods were read %d times, want once", n.pods.answers)
	}
}

func TestAPodThatStaysUnknownIsWaitedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var u unknownPods
		a, b := podName{"default", "a"}, podName{"default", "b"}
		expect := func(when string, want time.Duration, unknown ...podName) {
			t.Helper()
			u.forget(listing{pods: unknown}, unknown)
			if got := u.wait(unknown); got != want {
				t.Errorf("%s: %v, want %v", when, got, want)
			}
		}
		expect("at first", unknownTimeout, a)
		time.Sleep(unknownTimeout / 2)
		expect("at the next call", unknownTimeout/2, a)
		time.Sleep(unknownTimeout / 2)
		expect("at the end of the time", 0, a)
		expect("with another pod", unknownTimeout, a, b)
		time.Sleep(unknownExpiry + time.Second)
		expect("much later", unknownTimeout, a)
		if len(u.until) != 2 { // b's time ended later
			t.Errorf("%d pods are remembered", len(u.until))
		}
		time.Sleep(2 * unknownExpiry)
		expect("without unknown pods", 0)
		if len(u.until) > 0 {
			t.Errorf("%v are remembered", u.until)
		}
	})
}

// A StatefulSet creates its pods again under their names.
func TestTheNextPodOfANameIsWaitedFor(t *testing.T) {
	db := []podName{{"default", "db-0"}}
	for name, test := range map[string]struct {
		between listing
		unknown []podName // of these
		want    time.Duration
	}{
		"once its pod is known":                     {between: listing{pods: db}, want: unknownTimeout},
		"once the kubelet does not list it":         {between: listing{all: true}, want: unknownTimeout},
		"but not while it is listed and unknown":    {between: listing{pods: db, all: true}, unknown: db},
		"but not because a call is for another pod": {between: listing{pods: []podName{{"default", "web"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var u unknownPods
				u.wait(db)
				time.Sleep(unknownTimeout)
				u.forget(test.between, test.unknown)
				if got := u.wait(db); got != test.want {
					t.Errorf("the wait is %v, want %v", got, test.want)
				}
			})
		})
	}
}

// The call itself sees that the pod is known: there may be no other one before the next pod.
func TestAPodThatBecameKnownDuringACallIsForgotten(t *testing.T) {
	n := newNode(t)
	n.kubelet.lists(pod("train", "main"))
	n.pods.synced = true
	n.pods.delivers = func() { n.claims("u1", "train", map[string][]string{"main": {gpu0}}) }
	n.serve()
	n.list()
	n.server.unknown.mu.Lock()
	defer n.server.unknown.mu.Unlock()
	if until := n.server.unknown.until; len(until) > 0 {
		t.Errorf("%v are remembered", until)
	}
}

func TestAPodIsWaitedForThoughAnEarlierOneOfItsNameHasEnded(t *testing.T) {
	n := newNode(t)
	n.kubelet.lists(pod("train", "main"))
	n.pods.list["u0"] = pods.Pod{Namespace: "default", Name: "train", Ended: true}
	n.pods.synced = true
	n.pods.delivers = func() { n.claims("u1", "train", map[string][]string{"main": {gpu0}}) }
	n.serve()
	want := []*podresourcesapi.PodResources{holding(pod("train", "main"), dev("nvidia.com/gpu", "GPU-0", 0))}
	if diff := cmp.Diff(want, n.list(), protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A network plugin gets each pod of the node, and few of them have devices.
func TestClaimsAreNotReadToGetAPodThatHasNone(t *testing.T) {
	n := newNode(t)
	n.claims("u1", "train", map[string][]string{"main": {gpu0}})
	n.claims("u2", "started", map[string][]string{"main": {gpu1}})
	n.grants = append(n.grants, grantOf("u2", "started", map[string][]string{"main": {gpu1}}))
	n.pods.list["u3"] = pods.Pod{Namespace: "default", Name: "plain"}
	n.kubelet.lists(pod("train", "main"), pod("started", "main"), pod("plain", "main"))
	n.serve()
	for name, want := range map[string]*podresourcesapi.PodResources{
		"started": holding(pod("started", "main"), dev("nvidia.com/gpu", "GPU-1", 1)),
		"plain":   pod("plain", "main"),
	} {
		got, err := n.get(name)
		if diff := cmp.Diff(want, got, protocmp.Transform()); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
	if len(n.pending.queried) > 0 {
		t.Errorf("the claims of %q were read", n.pending.queried)
	}
}
