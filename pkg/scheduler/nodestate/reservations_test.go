// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestAnUnsureBindingKeepsItsDevicesUntilItIsSettled(t *testing.T) {
	w := newWorld(t)
	node := w.node("n", "n-1", "A", "B")
	pod := w.pod("p", 1)
	annotation := w.mustReserve(nodeInfo(node), pod)
	w.cache.Keep("n", "p")
	w.cache.Unreserve("n", "p")
	w.cache.Unreserve("n", "p")
	w.want("free while it is unsure", w.free(nodeInfo(node)), "A")
	w.want("reserved while it is unsure", w.cache.Reserved("n", "p"), annotation)
	w.want("free when the bound pod shows up", w.free(nodeInfo(node, w.bound(pod, "n", annotation))), "A")
	w.want("reserved after that", w.cache.Reserved("n", "p"), "")
	w.cache.Settle("n", "p")
	w.want("free when that pod goes", w.free(nodeInfo(node)), "A B")
}

func TestAnUnsureBindingThatDidNotTakeEffectGivesItsDevicesBack(t *testing.T) {
	w := newWorld(t)
	node := w.node("n", "n-1", "A")
	w.mustReserve(nodeInfo(node), w.pod("p", 1))
	w.cache.Keep("n", "p")
	w.cache.Unreserve("n", "p")
	w.cache.Settle("n", "p")
	w.want("free", w.free(nodeInfo(node)), "A")
	w.cache.Settle("n", "p")
	w.want("free, settled twice", w.free(nodeInfo(node)), "A")
}

func TestAPodIsTriedAgainWithTheDevicesOfItsUnsureBinding(t *testing.T) {
	w := newWorld(t)
	node := w.node("n", "n-1", "A", "B")
	pod := w.pod("p", 1)
	if w.cache.Resume("n", pod) {
		t.Error("there is something to resume before the first try")
	}
	annotation := w.mustReserve(nodeInfo(node), pod)
	if w.cache.Resume("n", pod) {
		t.Error("there is something to resume though nothing is unsure")
	}
	w.cache.Keep("n", "p")
	w.cache.Unreserve("n", "p")

	pod.ResourceVersion = w.nextVersion() // its status says that binding failed
	if !w.cache.Resume("n", pod) {
		t.Fatal("there is nothing to resume")
	}
	w.want("reserved", w.cache.Reserved("n", "p"), annotation)
	w.want("free beside the assumed pod", w.free(nodeInfo(node, assumed(pod, "n"))), "A")
	w.cache.Settle("n", "p") // the first binding did not take effect, the second is on its way
	w.want("free after the first is settled", w.free(nodeInfo(node, assumed(pod, "n"))), "A")
	w.cache.Keep("n", "p")
	w.cache.Keep("n", "p")
	w.cache.Unreserve("n", "p")
	w.cache.Settle("n", "p")
	w.want("free while one is unsettled", w.free(nodeInfo(node)), "A")
	w.cache.Settle("n", "p")
	w.want("free when all are settled", w.free(nodeInfo(node)), "A B")
}

// The pods of a group are reserved one after another, from one snapshot.
func TestReservationsCountAlsoForPodsThatTheSnapshotDoesNotList(t *testing.T) {
	w := newWorld(t)
	snapshot := nodeInfo(w.node("n", "n-1", "A", "B"))
	one, two, three := w.pod("one", 1), w.pod("two", 1), w.pod("three", 1)
	w.want("the first of a group", w.mustReserve(snapshot, one), allocated("one", "n", "B"))
	w.want("the second of a group", w.mustReserve(snapshot, two), allocated("two", "n", "A"))
	if annotation, err := w.reserve(snapshot, three); err == nil {
		t.Errorf("the third of a group: %s, want no room", annotation)
	}
	if _, unlisted, err := w.cache.Latest(t.Context(), snapshot, three); err != nil || !unlisted {
		t.Errorf("unlisted reservations: %t, error %v, want some", unlisted, err)
	}
	w.want("free for Filter, which asks about this snapshot", w.free(snapshot), "A B")
	w.cache.Unreserve("n", "two")
	w.want("the third, when the second is turned away", w.mustReserve(snapshot, three), allocated("three", "n", "A"))
	listed := nodeInfo(snapshot.Node(), assumed(one, "n"), assumed(three, "n"))
	if _, unlisted, err := w.cache.Latest(t.Context(), listed, two); err != nil || unlisted {
		t.Errorf("unlisted reservations in the next snapshot: %t, error %v, want none", unlisted, err)
	}
}

func TestAPodThatIsGoneHasNoReservation(t *testing.T) {
	w := newWorld(t)
	node := w.node("n", "n-1", "A")
	pod := w.pod("p", 1)
	w.mustReserve(nodeInfo(node), pod)
	w.cache.Keep("n", "p")
	w.cache.PodGone("p")
	w.cache.PodGone("p")
	w.want("free", w.free(nodeInfo(node)), "A")
	w.cache.Keep("n", "p")
	w.want("free after a late Keep", w.free(nodeInfo(node)), "A")
	if _, ok := w.cache.reservedOn.Load(pod.UID); ok {
		t.Error("the pod is remembered")
	}
}

func TestReservationsOutliveTheirNode(t *testing.T) {
	w := newWorld(t)
	old := w.node("n", "n-1", "A")
	pod := w.pod("p", 1)
	w.mustReserve(nodeInfo(old), pod)
	w.deleteNode(old)
	fresh := w.node("n", "n-2", "A")
	w.want("free beside the assumed pod", w.free(nodeInfo(fresh, assumed(pod, "n"))), "none")
	w.deleteNode(fresh)
	w.cache.Unreserve("n", "p")
	if n := w.cache.find("n"); n != nil {
		t.Errorf("the node left %v behind", n)
	}
}

func TestAPodThatIsUnsureOnTwoNodesKeepsDevicesOnBoth(t *testing.T) {
	w := newWorld(t)
	first, second := w.node("n", "n-1", "A"), w.node("m", "m-1", "A")
	pod := w.pod("p", 1)
	for _, node := range []string{"n", "m"} {
		w.mustReserve(nodeInfo(map[string]*v1.Node{"n": first, "m": second}[node]), pod)
		w.cache.Keep(node, "p")
		w.cache.Unreserve(node, "p")
	}
	w.want("free on the first", w.free(nodeInfo(first)), "none")
	w.want("free on the second", w.free(nodeInfo(second)), "none")
	w.cache.PodGone("p")
	w.want("free on the second when the pod is gone", w.free(nodeInfo(second)), "A")
	w.cache.Settle("n", "p")
	w.want("free on the first when it is settled", w.free(nodeInfo(first)), "A")
}
