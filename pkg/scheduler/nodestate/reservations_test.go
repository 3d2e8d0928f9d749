// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestAnUnsureBindingKeepsItsDevicesUntilItIsSettled(t *testing.T) {
	f := newFixture(t)
	node := f.node("n", "n-1", "A", "B")
	pod := f.pod("p", 1)
	annotation := f.mustReserve(nodeInfo(node), pod)
	f.cache.Keep("n", "p")
	f.cache.Unreserve("n", "p")
	f.cache.Unreserve("n", "p")
	f.want("free while it is unsure", f.free(nodeInfo(node)), "A")
	f.want("reserved while it is unsure", f.cache.Reserved("n", "p"), annotation)
	f.want("free when the bound pod shows up", f.free(nodeInfo(node, f.bound(pod, "n", annotation))), "A")
	f.want("reserved after that", f.cache.Reserved("n", "p"), "")
	f.cache.Resolve("n", "p")
	f.want("free when that pod goes", f.free(nodeInfo(node)), "A B")
}

func TestAnUnsureBindingThatDidNotTakeEffectGivesItsDevicesBack(t *testing.T) {
	f := newFixture(t)
	node := f.node("n", "n-1", "A")
	f.mustReserve(nodeInfo(node), f.pod("p", 1))
	f.cache.Keep("n", "p")
	f.cache.Unreserve("n", "p")
	f.cache.Resolve("n", "p")
	f.want("free", f.free(nodeInfo(node)), "A")
	f.cache.Resolve("n", "p")
	f.want("free, settled twice", f.free(nodeInfo(node)), "A")
}

func TestAPodIsTriedAgainWithTheDevicesOfItsUnsureBinding(t *testing.T) {
	f := newFixture(t)
	node := f.node("n", "n-1", "A", "B")
	pod := f.pod("p", 1)
	if f.cache.Resume("n", pod) {
		t.Error("there is something to resume before the first try")
	}
	annotation := f.mustReserve(nodeInfo(node), pod)
	if f.cache.Resume("n", pod) {
		t.Error("there is something to resume though nothing is unsure")
	}
	f.cache.Keep("n", "p")
	f.cache.Unreserve("n", "p")

	pod.ResourceVersion = f.nextVersion() // its status says that binding failed
	if !f.cache.Resume("n", pod) {
		t.Fatal("there is nothing to resume")
	}
	f.want("reserved", f.cache.Reserved("n", "p"), annotation)
	f.want("free next to the assumed pod", f.free(nodeInfo(node, assumed(pod, "n"))), "A")
	f.cache.Resolve("n", "p") // the first binding did not take effect, the second is on its way
	f.want("free after the first is settled", f.free(nodeInfo(node, assumed(pod, "n"))), "A")
	f.cache.Keep("n", "p")
	f.cache.Keep("n", "p")
	f.cache.Unreserve("n", "p")
	f.cache.Resolve("n", "p")
	f.want("free while one is unsettled", f.free(nodeInfo(node)), "A")
	f.cache.Resolve("n", "p")
	f.want("free when all are settled", f.free(nodeInfo(node)), "A B")
}

// The pods of a group are reserved one after another, from one snapshot.
func TestReservationsCountAlsoForPodsThatTheSnapshotDoesNotList(t *testing.T) {
	f := newFixture(t)
	snapshot := nodeInfo(f.node("n", "n-1", "A", "B"))
	one, two, three := f.pod("one", 1), f.pod("two", 1), f.pod("three", 1)
	f.want("the first of a group", f.mustReserve(snapshot, one), allocated("one", "n", "B"))
	f.want("the second of a group", f.mustReserve(snapshot, two), allocated("two", "n", "A"))
	if annotation, err := f.reserve(snapshot, three); err == nil {
		t.Errorf("the third of a group: %s, want no room", annotation)
	}
	if _, unlisted, err := f.cache.LatestState(t.Context(), snapshot, three); err != nil || !unlisted {
		t.Errorf("unlisted reservations: %t, error %v, want some", unlisted, err)
	}
	f.want("free for Filter, which asks about this snapshot", f.free(snapshot), "A B")
	f.cache.Unreserve("n", "two")
	f.want("the third, when the second is turned away", f.mustReserve(snapshot, three), allocated("three", "n", "A"))
	listed := nodeInfo(snapshot.Node(), assumed(one, "n"), assumed(three, "n"))
	if _, unlisted, err := f.cache.LatestState(t.Context(), listed, two); err != nil || unlisted {
		t.Errorf("unlisted reservations in the next snapshot: %t, error %v, want none", unlisted, err)
	}
}

func TestAPodThatIsGoneHasNoReservation(t *testing.T) {
	f := newFixture(t)
	node := f.node("n", "n-1", "A")
	pod := f.pod("p", 1)
	f.mustReserve(nodeInfo(node), pod)
	f.cache.Keep("n", "p")
	f.cache.PodDeleted("p")
	f.cache.PodDeleted("p")
	f.want("free", f.free(nodeInfo(node)), "A")
	f.cache.Keep("n", "p")
	f.want("free after a late Keep", f.free(nodeInfo(node)), "A")
	if nodes := f.cache.reservedOn.nodes(pod.UID); nodes != nil {
		t.Errorf("the pod is remembered, with nodes %q", nodes)
	}
}

func TestReservationsOutliveTheirNode(t *testing.T) {
	f := newFixture(t)
	old := f.node("n", "n-1", "A")
	pod := f.pod("p", 1)
	f.mustReserve(nodeInfo(old), pod)
	f.deleteNode(old)
	fresh := f.node("n", "n-2", "A")
	f.want("free next to the assumed pod", f.free(nodeInfo(fresh, assumed(pod, "n"))), "none")
	f.deleteNode(fresh)
	f.cache.Unreserve("n", "p")
	if n := f.cache.find("n"); n != nil {
		t.Errorf("the node left %v behind", n)
	}
}

func TestAPodThatIsUnsureOnTwoNodesKeepsDevicesOnBoth(t *testing.T) {
	f := newFixture(t)
	first, second := f.node("n", "n-1", "A"), f.node("m", "m-1", "A")
	pod := f.pod("p", 1)
	for _, node := range []string{"n", "m"} {
		f.mustReserve(nodeInfo(map[string]*v1.Node{"n": first, "m": second}[node]), pod)
		f.cache.Keep(node, "p")
		f.cache.Unreserve(node, "p")
	}
	f.want("free on the first", f.free(nodeInfo(first)), "none")
	f.want("free on the second", f.free(nodeInfo(second)), "none")
	f.cache.PodDeleted("p")
	f.want("free on the second when the pod is gone", f.free(nodeInfo(second)), "A")
	f.cache.Resolve("n", "p")
	f.want("free on the first when it is settled", f.free(nodeInfo(first)), "A")
}

// The pod is bound to the first node, which the scheduler does not know yet. So it is scheduled
// again, and refused on the second one.
func TestAPodThatIsGoneHasNoReservationOnTheNodeBeforeItsLast(t *testing.T) {
	for name, settle := range map[string]func(*fixture, *v1.Node, *v1.Pod){
		"settled":   func(f *fixture, _ *v1.Node, _ *v1.Pod) { f.cache.Resolve("m", "p") },
		"unsettled": func(*fixture, *v1.Node, *v1.Pod) {},
		"seen bound": func(f *fixture, second *v1.Node, pod *v1.Pod) {
			f.free(nodeInfo(second, f.bound(pod, "m", f.cache.Reserved("m", "p"))))
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			first, second := f.node("n", "n-1", "A"), f.node("m", "m-1", "A")
			pod := f.pod("p", 1)
			f.mustReserve(nodeInfo(first), pod)
			f.cache.Keep("n", "p")
			f.cache.Unreserve("n", "p")
			f.mustReserve(nodeInfo(second), pod)
			f.want("the latest node", f.cache.ReservedOn("p"), "m")
			f.cache.Keep("m", "p")
			f.cache.Unreserve("m", "p")
			settle(f, second, pod)
			f.want("free on the first while the pod is there", f.free(nodeInfo(first)), "none")
			if !f.cache.PodDeleted("p") {
				t.Error("nothing was kept")
			}
			f.want("free on the first when the pod is gone", f.free(nodeInfo(first)), "A")
			f.want("free on the second when the pod is gone", f.free(nodeInfo(second)), "A")
			if nodes := f.cache.reservedOn.nodes("p"); nodes != nil {
				t.Errorf("the pod is remembered, with nodes %q", nodes)
			}
		})
	}
}

// A copy, on which questions are answered, forgets a pod on all nodes too.
func TestACopyDropsAllReservationsOfAPod(t *testing.T) {
	f := newFixture(t)
	nodes := []*v1.Node{f.node("n", "n-1", "A"), f.node("m", "m-1", "A")}
	pod := f.pod("p", 1)
	for _, node := range nodes {
		f.mustReserve(nodeInfo(node), pod)
		f.cache.Keep(node.Name, "p")
		f.cache.Unreserve(node.Name, "p")
	}
	copied := f.cache.Copy()
	copied.Remove("p")
	for _, node := range nodes {
		if got := copied.Reserved(node.Name, "p"); got != "" {
			t.Errorf("the copy still reserves on %s: %s", node.Name, got)
		}
		if f.cache.Reserved(node.Name, "p") == "" {
			t.Errorf("what was copied reserves nothing on %s any more", node.Name)
		}
	}
}
