// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// computes reports how often do had the plugins account for the node's only holder.
func (f *fixture) computes(do func()) int64 {
	before := f.plugin.taken.Load()
	do()
	return f.plugin.taken.Load() - before
}

func TestANodeInTheSameStateIsNotComputedAgain(t *testing.T) {
	f := newFixture(t)
	node := f.node("n", "n-1", "A", "B")
	info := nodeInfo(node, f.bound(f.pod("p", 1), "n", allocated("p", "n", "A")))
	of := func(unmodified bool) func() {
		return func() {
			if _, err := f.cache.State(t.Context(), info, f.pod("q", 1), unmodified); err != nil {
				t.Fatal(err)
			}
		}
	}
	step := func(what string, unmodified bool, want int64) {
		t.Helper()
		if got := f.computes(of(unmodified)); got != want {
			t.Errorf("%s: computed %d times, want %d", what, got, want)
		}
	}
	step("seen first", true, 1)
	step("seen again", true, 0)
	step("in a simulation", false, 1)
	step("after a simulation", true, 0)
	f.cache.Unreserve("n", "no-pod")
	step("after an Unreserve of nothing", true, 0)
	f.mustReserve(info, f.pod("r", 1))
	step("after a Reserve", true, 1)
	f.cache.Unreserve("n", "r")
	step("after an Unreserve", true, 1)
	node = f.node("n", "n-1", "A", "B")
	info.(*framework.NodeInfo).SetNode(node)
	step("after an update of the node that changes its generation only", true, 1)
	step("and again", true, 0)
	f.node("n", "n-1", "A", "B", "C")
	step("after a new inventory that the snapshot has not yet", true, 1)
	step("and again", true, 0)
}

// A pod group is scheduled: the snapshot gets and loses assumed pods and keeps its generation.
func TestStatesOfOneGenerationAreDistinguished(t *testing.T) {
	f := newFixture(t)
	node := f.node("n", "n-1", "A", "B")
	info := framework.NewNodeInfo()
	info.SetNode(node)
	generation := info.Generation
	f.want("free at first", f.free(info), "A B")

	for range 2 {
		first, second := f.pod("first", 1), with(f.pod("second", 1), allocated("second", "n", "B"))
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
			f.mustReserve(info, member)
			f.want("free with "+step.pod.Name, f.free(info), step.want)
		}
		for _, pod := range []*v1.Pod{second, first} {
			f.cache.Unreserve("n", pod.UID)
			if err := info.RemovePod(klog.Background(), assumed(pod, "n")); err != nil {
				t.Fatal(err)
			}
			info.Generation = generation
		}
		f.want("free after all were taken back", f.free(info), "A B")
	}
}

// A pod is assumed, does not fit after all, and is forgotten; meanwhile its forged annotation was
// looked at.
func TestAPodThatGotNoReservationLeavesNoTrace(t *testing.T) {
	f := newFixture(t)
	node := f.node("n", "n-1", "A", "B")
	info := framework.NewNodeInfo()
	info.SetNode(node)
	generation := info.Generation
	forger := assumed(with(f.pod("forger", 9), allocated("forger", "n", "A", "B")), "n")
	podInfo, err := framework.NewPodInfo(forger)
	if err != nil {
		t.Fatal(err)
	}
	info.AddPodInfo(podInfo)
	info.Generation = generation
	if annotation, err := f.reserve(info, forger); err == nil {
		t.Errorf("reserved %s", annotation)
	}
	if err := info.RemovePod(klog.Background(), forger); err != nil {
		t.Fatal(err)
	}
	info.Generation = generation
	f.want("free", f.free(info), "A B")
}

// What a pod holds is the same before and after it is seen bound, and pods without devices hold
// nothing.
func TestPurePluginsAccountOnceForWhatIsHeld(t *testing.T) {
	f := newFixtureOf(t, &gpus{pure: true})
	node := f.node("n", "n-1", "A", "B")
	pod := f.pod("p", 1)
	annotation := f.mustReserve(nodeInfo(node), pod)
	for _, step := range []struct {
		what string
		pods []*v1.Pod
		want int64
	}{
		{"the pod is assumed", []*v1.Pod{assumed(pod, "n")}, 1},
		{"it is seen bound", []*v1.Pod{f.bound(pod, "n", annotation)}, 0},
		{
			"a pod without devices comes",
			[]*v1.Pod{f.bound(pod, "n", annotation), f.bound(f.pod("plain", 0), "n", "")}, 0,
		},
		{
			"another takes its place with the other GPU",
			[]*v1.Pod{f.bound(f.pod("q", 1), "n", allocated("q", "n", "B"))}, 1,
		},
	} {
		info := nodeInfo(node, step.pods...)
		if got := f.computes(func() { f.of(info) }); got != step.want {
			t.Errorf("%s: computed %d times, want %d", step.what, got, step.want)
		}
	}
	f.want("free in the end", f.free(nodeInfo(node, f.bound(f.pod("q", 1), "n", allocated("q", "n", "B")))), "A")
}
