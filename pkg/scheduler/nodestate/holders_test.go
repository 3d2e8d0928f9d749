// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

func TestWhoHoldsWhatIsReadFromTheBoundPods(t *testing.T) {
	w := newWorld(t)
	node := w.node("n", "n-1", "A", "B", "C")
	pod := w.pod("p", 1)
	terminating := w.bound(pod, "n", allocated("p", "n", "B"))
	terminating.DeletionTimestamp = &metav1.Time{}
	for name, test := range map[string]struct {
		annotation string
		want       string
	}{
		"an allocation":                   {allocated("p", "n", "B"), "A C"},
		"no annotation":                   {"", "A B C"},
		"requests only":                   {`{"runningcontainer":{"main":{"requests":{"gpu/x/cards":1}}}}`, "A B C"},
		"an allocation on another node":   {allocated("p", "m", "B"), "A B C"},
		"an allocation of another pod":    {allocated("q", "n", "B"), "A B C"},
		"an annotation that is malformed": {`{"nodename":"n"`, "A B C"},
		"a device that the node has not":  {allocated("p", "n", "X"), "A B C"},
		"the same device twice over":      {allocated("p", "n", "B", "B"), "A C"},
	} {
		t.Run(name, func(*testing.T) {
			w.want("free", w.free(nodeInfo(node, w.bound(pod, "n", test.annotation))), test.want)
		})
	}
	w.want("free beside a terminating pod", w.free(nodeInfo(node, terminating)), "A C")
}

func TestWhatAnAssumedPodHoldsIsItsReservationAndNotWhatItsAnnotationSays(t *testing.T) {
	w := newWorld(t)
	node := w.node("n", "n-1", "A", "B", "C")
	forger := with(w.pod("p", 1), allocated("p", "n", "A", "B"))
	annotation := w.mustReserve(nodeInfo(node), forger)
	w.want("annotation", annotation, allocated("p", "n", "C"))
	w.want("free beside the assumed pod", w.free(nodeInfo(node, assumed(forger, "n"))), "A B")
	w.want("free where it is not listed", w.free(nodeInfo(node)), "A B C")

	w.want("free beside the bound pod", w.free(nodeInfo(node, w.bound(forger, "n", annotation))), "A B")
	w.want("what is reserved after that", w.cache.Reserved("n", "p"), "")
}

func TestAPodThatForgesExactlyItsAllocationIsNotTakenForBound(t *testing.T) {
	w := newWorld(t)
	node := w.node("n", "n-1", "A")
	forger := with(w.pod("p", 1), allocated("p", "n", "A"))
	annotation := w.mustReserve(nodeInfo(node), forger)
	w.want("annotation", annotation, allocated("p", "n", "A"))
	w.want("free", w.free(nodeInfo(node, assumed(forger, "n"))), "none")
	w.want("reserved", w.cache.Reserved("n", "p"), annotation)
	w.cache.Unreserve("n", "p")
	w.want("free after the binding failed", w.free(nodeInfo(node)), "A")
}

func TestAPodThatForgesWithoutAskingHoldsNothing(t *testing.T) {
	w := newWorld(t)
	node := w.node("n", "n-1", "A")
	forger := with(w.pod("p", 0), allocated("p", "n", "A"))
	annotation := w.mustReserve(nodeInfo(node), forger)
	w.want("annotation", annotation, `{"podname":"p","nodename":"n","runningcontainer":{"main":{}}}`)
	w.want("free while it is assumed", w.free(nodeInfo(node, assumed(forger, "n"))), "A")
	w.want("free when it is bound", w.free(nodeInfo(node, w.bound(forger, "n", annotation))), "A")
}

func TestAPodBoundByOthersHoldsWhatItsOwnAnnotationSays(t *testing.T) {
	w := newWorld(t)
	node := w.node("n", "n-1", "A", "B")
	pod := w.pod("p", 1)
	w.want("reserved", w.mustReserve(nodeInfo(node), pod), allocated("p", "n", "B"))
	w.want("free", w.free(nodeInfo(node, w.bound(pod, "n", allocated("p", "n", "A")))), "B")
	w.want("reserved after that", w.cache.Reserved("n", "p"), "")
}

func TestEvictingAPodInASimulationFreesExactlyItsDevices(t *testing.T) {
	w := newWorld(t)
	node := w.node("n", "n-1", "A", "B", "C", "D")
	victim := w.bound(w.pod("victim", 2), "n", allocated("victim", "n", "B", "C"))
	other := w.bound(w.pod("other", 1), "n", allocated("other", "n", "A"))
	binding := w.pod("binding", 1)
	w.mustReserve(nodeInfo(node, victim, other), binding)
	snapshot := nodeInfo(node, victim, other, assumed(binding, "n"))
	w.want("free", w.free(snapshot), "none")

	clone := snapshot.Snapshot()
	if err := clone.RemovePod(klog.Background(), victim); err != nil {
		t.Fatal(err)
	}
	w.want("free without the victim", w.freeFor(clone, w.pod("q", 1), false), "B C")
	if err := clone.RemovePod(klog.Background(), assumed(binding, "n")); err != nil {
		t.Fatal(err)
	}
	w.want("free without the pod that is being bound", w.freeFor(clone, w.pod("q", 1), false), "B C D")
	w.want("free in the snapshot, still", w.free(snapshot), "none")
}

func TestNominatedPodsAreGivenDevicesInSimulation(t *testing.T) {
	w := newWorld(t)
	node := w.node("n", "n-1", "A", "B", "C")
	one, two, tooMany := w.pod("one", 1), w.pod("two", 1), w.pod("too-many", 9)
	info := nodeInfo(node, one, tooMany, two)
	w.want("free", w.freeFor(info, w.pod("q", 1), false), "A")
	w.want("free for one of them", w.freeFor(info, two, false), "A B")
	forger := with(w.pod("forger", 1), allocated("forger", "n", "A", "B", "C"))
	w.want("free beside a forged one", w.freeFor(nodeInfo(node, forger), w.pod("q", 1), false), "A B")
	w.want("free beside a plain one", w.freeFor(nodeInfo(node, w.pod("plain", 0)), w.pod("q", 1), false), "A B C")
}

// Preemption for a pod group adds the group's pods to a node one by one as they are, and reserves
// devices for them.
func TestAReservationCountsForAPodThatIsListedWithoutANodesName(t *testing.T) {
	w := newWorld(t)
	node := w.node("n", "n-1", "A", "B", "C")
	member := with(w.pod("member", 1), allocated("member", "n", "A", "B"))
	w.want("annotation", w.mustReserve(nodeInfo(node, member), member), allocated("member", "n", "C"))
	w.want("free", w.freeFor(nodeInfo(node, member), w.pod("q", 1), false), "A B")
	w.want("free for itself", w.freeFor(nodeInfo(node, member), member, false), "A B C")
}

func TestAPodDoesNotStandInItsOwnWay(t *testing.T) {
	w := newWorld(t)
	node := w.node("n", "n-1", "A")
	pod := w.pod("p", 1)
	w.mustReserve(nodeInfo(node), pod)
	w.want("free for the pod itself", w.freeFor(nodeInfo(node, assumed(pod, "n")), pod, true), "A")
	w.want("free for others", w.free(nodeInfo(node, assumed(pod, "n"))), "none")
}
