// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// computes reports how often f had the plugins account for the node's only holder.
func (w *world) computes(f func()) int64 {
	before := w.plugin.taken.Load()
	f()
	return w.plugin.taken.Load() - before
}

func TestANodeInTheSameStateIsNotComputedAgain(t *testing.T) {
	w := newWorld(t)
	node := w.node("n", "n-1", "A", "B")
	info := nodeInfo(node, w.bound(w.pod("p", 1), "n", allocated("p", "n", "A")))
	of := func(unmodified bool) func() {
		return func() {
			if _, err := w.cache.Of(t.Context(), info, w.pod("q", 1), unmodified); err != nil {
				t.Fatal(err)
			}
		}
	}
	step := func(what string, unmodified bool, want int64) {
		t.Helper()
		if got := w.computes(of(unmodified)); got != want {
			t.Errorf("%s: computed %d times, want %d", what, got, want)
		}
	}
	step("seen first", true, 1)
	step("seen again", true, 0)
	step("in a simulation", false, 1)
	step("after a simulation", true, 0)
	w.cache.Unreserve("n", "nobody")
	step("after an Unreserve of nothing", true, 0)
	w.mustReserve(info, w.pod("r", 1))
	step("after a Reserve", true, 1)
	w.cache.Unreserve("n", "r")
	step("after an Unreserve", true, 1)
	node = w.node("n", "n-1", "A", "B")
	info.(*framework.NodeInfo).SetNode(node)
	step("after an update of the node that changes its generation only", true, 1)
	step("and again", true, 0)
	w.node("n", "n-1", "A", "B", "C")
	step("after a new inventory that the snapshot has not yet", true, 1)
	step("and again", true, 0)
}

// A pod group is scheduled: the snapshot gets and loses assumed pods and keeps its generation.
func TestStatesOfOneGenerationAreToldApart(t *testing.T) {
	w := newWorld(t)
	node := w.node("n", "n-1", "A", "B")
	info := framework.NewNodeInfo()
	info.SetNode(node)
	generation := info.Generation
	w.want("free at first", w.free(info), "A B")

	for range 2 {
		first, second := w.pod("first", 1), with(w.pod("second", 1), allocated("second", "n", "B"))
		for _, step := range []struct {
			pod  *v1.Pod
			want string
		}{{first, "A"}, {second, "none"}} {
			member := assumed(step.pod, "n")
			podInfo, err := framework.NewPodInfo(member)
			if err != nil {
				t.Fatal(err)
			}
			info.AddPodInfo(podInfo)
			info.Generation = generation
			w.mustReserve(info, member)
			w.want("free with "+step.pod.Name, w.free(info), step.want)
		}
		for _, pod := range []*v1.Pod{second, first} {
			w.cache.Unreserve("n", pod.UID)
			if err := info.RemovePod(klog.Background(), assumed(pod, "n")); err != nil {
				t.Fatal(err)
			}
			info.Generation = generation
		}
		w.want("free after all were taken back", w.free(info), "A B")
	}
}

// A pod is assumed, does not fit after all, and is forgotten; meanwhile its forged annotation was
// looked at.
func TestAPodThatGotNoReservationLeavesNoTrace(t *testing.T) {
	w := newWorld(t)
	node := w.node("n", "n-1", "A", "B")
	info := framework.NewNodeInfo()
	info.SetNode(node)
	generation := info.Generation
	forger := assumed(with(w.pod("forger", 9), allocated("forger", "n", "A", "B")), "n")
	podInfo, err := framework.NewPodInfo(forger)
	if err != nil {
		t.Fatal(err)
	}
	info.AddPodInfo(podInfo)
	info.Generation = generation
	if annotation, err := w.reserve(info, forger); err == nil {
		t.Errorf("reserved %s", annotation)
	}
	if err := info.RemovePod(klog.Background(), forger); err != nil {
		t.Fatal(err)
	}
	info.Generation = generation
	w.want("free", w.free(info), "A B")
}

// What a pod holds is the same before and after it is seen bound, and pods without devices hold
// nothing.
func TestPurePluginsAccountOnceForWhatIsHeld(t *testing.T) {
	w := newWorldOf(t, &gpus{pure: true})
	node := w.node("n", "n-1", "A", "B")
	pod := w.pod("p", 1)
	annotation := w.mustReserve(nodeInfo(node), pod)
	for _, step := range []struct {
		what string
		pods []*v1.Pod
		want int64
	}{
		{"the pod is assumed", []*v1.Pod{assumed(pod, "n")}, 1},
		{"it is seen bound", []*v1.Pod{w.bound(pod, "n", annotation)}, 0},
		{"a pod without devices comes", []*v1.Pod{w.bound(pod, "n", annotation), w.bound(w.pod("plain", 0), "n", "")}, 0},
		{"another takes its place with the other GPU", []*v1.Pod{w.bound(w.pod("q", 1), "n", allocated("q", "n", "B"))}, 1},
	} {
		info := nodeInfo(node, step.pods...)
		if got := w.computes(func() { w.of(info) }); got != step.want {
			t.Errorf("%s: computed %d times, want %d", step.what, got, step.want)
		}
	}
	w.want("free in the end", w.free(nodeInfo(node, w.bound(w.pod("q", 1), "n", allocated("q", "n", "B")))), "A")
}
