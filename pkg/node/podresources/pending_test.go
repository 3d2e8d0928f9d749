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
		a, b := []podName{{"default", "a"}}, []podName{{"default", "a"}, {"default", "b"}}
		expect := func(when string, unknown []podName, want time.Duration) {
			t.Helper()
			if got := u.wait(unknown); got != want {
				t.Errorf("%s: %v, want %v", when, got, want)
			}
		}
		expect("at first", a, unknownTimeout)
		time.Sleep(unknownTimeout / 2)
		expect("at the next call", a, unknownTimeout/2)
		time.Sleep(unknownTimeout / 2)
		expect("at the end of the time", a, 0)
		expect("with another pod", b, unknownTimeout)
		time.Sleep(unknownExpiry + time.Second)
		expect("much later", a, unknownTimeout)
		if len(u.until) != 2 { // b's time ended later
			t.Errorf("%d pods are remembered", len(u.until))
		}
		time.Sleep(2 * unknownExpiry)
		expect("without unknown pods", nil, 0)
		if len(u.until) > 0 {
			t.Errorf("%v are remembered", u.until)
		}
	})
}
