// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestHoldersAreReadFromBoundPods(t *testing.T) {
	f := newFixture(t)
	node := f.node("n", "n-1", "A", "B", "C")
	pod := f.pod("p", 1)
	terminating := f.bound(pod, "n", allocated("p", "n", "B"))
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
			f.want("free", f.free(nodeInfo(node, f.bound(pod, "n", test.annotation))), test.want)
		})
	}
	f.want("free next to a terminating pod", f.free(nodeInfo(node, terminating)), "A C")
}

func TestAnAssumedPodHoldsItsReservation(t *testing.T) {
	f := newFixture(t)
	node := f.node("n", "n-1", "A", "B", "C")
	forger := with(f.pod("p", 1), allocated("p", "n", "A", "B"))
	annotation := f.mustReserve(nodeInfo(node), forger)
	f.want("annotation", annotation, allocated("p", "n", "C"))
	f.want("free next to the assumed pod", f.free(nodeInfo(node, assumed(forger, "n"))), "A B")
	f.want("free where it is not listed", f.free(nodeInfo(node)), "A B C")

	f.want("free next to the bound pod", f.free(nodeInfo(node, f.bound(forger, "n", annotation))), "A B")
	f.want("what is reserved after that", f.cache.Reserved("n", "p"), "")
}

func TestAPodThatForgesExactlyItsAllocationIsNotTakenForBound(t *testing.T) {
	f := newFixture(t)
	node := f.node("n", "n-1", "A")
	forger := with(f.pod("p", 1), allocated("p", "n", "A"))
	annotation := f.mustReserve(nodeInfo(node), forger)
	f.want("annotation", annotation, allocated("p", "n", "A"))
	f.want("free", f.free(nodeInfo(node, assumed(forger, "n"))), "none")
	f.want("reserved", f.cache.Reserved("n", "p"), annotation)
	f.cache.Unreserve("n", "p")
	f.want("free after the binding failed", f.free(nodeInfo(node)), "A")
}

func TestAPodThatForgesWithoutARequestHoldsNothing(t *testing.T) {
	f := newFixture(t)
	node := f.node("n", "n-1", "A")
	forger := with(f.pod("p", 0), allocated("p", "n", "A"))
	annotation := f.mustReserve(nodeInfo(node), forger)
	f.want("annotation", annotation, `{"podname":"p","nodename":"n","runningcontainer":{"main":{}}}`)
	f.want("free while it is assumed", f.free(nodeInfo(node, assumed(forger, "n"))), "A")
	f.want("free when it is bound", f.free(nodeInfo(node, f.bound(forger, "n", annotation))), "A")
}

func TestAPodBoundByOthersHoldsWhatItsOwnAnnotationSays(t *testing.T) {
	f := newFixture(t)
	node := f.node("n", "n-1", "A", "B")
	pod := f.pod("p", 1)
	f.want("reserved", f.mustReserve(nodeInfo(node), pod), allocated("p", "n", "B"))
	f.want("free", f.free(nodeInfo(node, f.bound(pod, "n", allocated("p", "n", "A")))), "B")
	f.want("reserved after that", f.cache.Reserved("n", "p"), "")
}

func TestEvictingAPodInASimulationFreesExactlyItsDevices(t *testing.T) {
	f := newFixture(t)
	node := f.node("n", "n-1", "A", "B", "C", "D")
	victim := f.bound(f.pod("victim", 2), "n", allocated("victim", "n", "B", "C"))
	other := f.bound(f.pod("other", 1), "n", allocated("other", "n", "A"))
	binding := f.pod("binding", 1)
	f.mustReserve(nodeInfo(node, victim, other), binding)
	snapshot := nodeInfo(node, victim, other, assumed(binding, "n"))
	f.want("free", f.free(snapshot), "none")

	clone := snapshot.Snapshot()
	if err := clone.RemovePod(klog.Background(), victim); err != nil {
		t.Fatal(err)
	}
	f.want("free without the victim", f.freeFor(clone, f.pod("q", 1), false), "B C")
	if err := clone.RemovePod(klog.Background(), assumed(binding, "n")); err != nil {
		t.Fatal(err)
	}
	f.want("free without the pod that is being bound", f.freeFor(clone, f.pod("q", 1), false), "B C D")
	f.want("free in the snapshot, still", f.free(snapshot), "none")
}

func TestNominatedPodsAreGivenDevicesInSimulation(t *testing.T) {
	f := newFixture(t)
	node := f.node("n", "n-1", "A", "B", "C")
	one, two, tooMany := f.pod("one", 1), f.pod("two", 1), f.pod("too-many", 9)
	info := nodeInfo(node, one, tooMany, two)
	f.want("free", f.freeFor(info, f.pod("q", 1), false), "A")
	f.want("free for one of them", f.freeFor(info, two, false), "A B")
	forger := with(f.pod("forger", 1), allocated("forger", "n", "A", "B", "C"))
	f.want("free next to a forged one", f.freeFor(nodeInfo(node, forger), f.pod("q", 1), false), "A B")
	f.want("free next to a plain one", f.freeFor(nodeInfo(node, f.pod("plain", 0)), f.pod("q", 1), false), "A B C")
}

// Of two pods that are evicted for it one has gone: what it left is the nominated pod's, which does
// not fit before the other has gone, too.
func TestANominatedPodKeepsWhatItsVictimsLeaveOneByOne(t *testing.T) {
	f := newFixture(t)
	node := f.node("n", "n-1", "A", "B")
	victim := f.bound(f.pod("victim", 1), "n", allocated("victim", "n", "B"))
	preemptor := f.pod("preemptor", 2)
	f.want("free next to a pod that stays", f.freeFor(nodeInfo(node, victim, preemptor), f.pod("q", 1), false), "A")
	victim.DeletionTimestamp = &metav1.Time{}
	f.want("free next to one that ends", f.freeFor(nodeInfo(node, victim, preemptor), f.pod("q", 1), false), "none")
	tooMany := f.pod("too-many", 3)
	f.want("free where it will not fit", f.freeFor(nodeInfo(node, victim, tooMany), f.pod("q", 1), false), "A")
}

// What one of two nominated pods waits for is not promised to the other.
func TestTwoNominatedPodsKeepWhatTheirVictimsLeave(t *testing.T) {
	f := newFixture(t)
	node := f.node("n", "n-1", "A", "B", "C", "D")
	var pods []*v1.Pod
	for name, gpu := range map[string]string{"a": "A", "b": "B", "c": "C"} {
		victim := f.bound(f.pod(name, 1), "n", allocated(name, "n", gpu))
		victim.DeletionTimestamp = &metav1.Time{}
		pods = append(pods, victim)
	}
	one, two := f.pod("one", 2), f.pod("two", 2)
	f.want("free", f.freeFor(nodeInfo(node, append(pods, one, two)...), f.pod("q", 1), false), "none")
	f.want("free for one of them", f.freeFor(nodeInfo(node, append(pods, one)...), one, false), "D")

	last := f.bound(f.pod("d", 1), "n", allocated("d", "n", "D"))
	last.DeletionTimestamp = &metav1.Time{}
	state, err := f.cache.State(t.Context(), nodeInfo(node, append(pods, last, one, two)...), f.pod("q", 1), false)
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range state.Resources() {
		if of.Used > of.Allocatable {
			t.Errorf("%s is promised twice: %d of it are used", of.Name, of.Used)
		}
	}
}

func TestHeldDevicesAreSubtractedOncePerPhase(t *testing.T) {
	info := func(names ...string) sdk.ContainerInfo {
		container := sdk.ContainerInfo{DevRequests: sdk.ResourceList{}, AllocateFrom: sdk.ResourceLocation{}}
		for _, name := range names {
			at := sdk.ResourceName("resource/group/gpu/" + name + "/memory")
			container.DevRequests[at], container.AllocateFrom[at] = 10, at
		}
		return container
	}
	left := sdk.ResourceList{"resource/group/gpu/A/memory": 15}
	rest := subtractHeld(&sdk.PodInfo{
		InitContainers:    map[string]sdk.ContainerInfo{"init": info("A"), "next": info("A", "B")},
		RunningContainers: map[string]sdk.ContainerInfo{"main": info("A", "B"), "side": info("A")},
	}, left)
	if got := left["resource/group/gpu/A/memory"]; got != 0 {
		t.Errorf("%d of it is left", got)
	}
	sum := sdk.ResourceList{}
	for _, container := range rest.Containers() {
		for request, from := range container.AllocateFrom {
			sum[from] += container.DevRequests[request]
		}
	}
	want := sdk.ResourceList{"resource/group/gpu/A/memory": 5, "resource/group/gpu/B/memory": 20}
	if diff := cmp.Diff(want, sum); diff != "" {
		t.Errorf("the rest (-want +got):\n%s", diff)
	}
}

// Its owner may write anything there, of any length and any number of times.
func TestTheAnnotationOfABoundPodWithoutAnAllocationIsNotRead(t *testing.T) {
	f := newFixture(t)
	node := f.node("n", "n-1", "A")
	var annotation strings.Builder
	annotation.WriteString(`{"requests":{"a":1`)
	for i := range 5000 {
		fmt.Fprintf(&annotation, `,"gpugrp0/A/gpu/%d/cards":1`, i)
	}
	annotation.WriteString("}}")
	pod := f.bound(f.pod("p", 0), "n", annotation.String())
	if _, err := deviceinfo.PodAllocation(pod); !errors.Is(err, deviceinfo.ErrNoAllocation) {
		t.Fatal(err)
	}
	info := nodeInfo(node, pod)
	f.want("free", f.free(info), "A")
	allocations := testing.AllocsPerRun(10, func() {
		if _, err := f.cache.State(t.Context(), info, pod, false); err != nil {
			t.Error(err)
		}
	})
	if allocations > 200 {
		t.Errorf("a state takes %v allocations, as if the annotation were read", allocations)
	}
}

// Preemption for a pod group adds the group's pods to a node one by one as they are, and reserves
// devices for them.
func TestAReservationCountsForAPodThatIsListedWithoutANodesName(t *testing.T) {
	f := newFixture(t)
	node := f.node("n", "n-1", "A", "B", "C")
	member := with(f.pod("member", 1), allocated("member", "n", "A", "B"))
	f.want("annotation", f.mustReserve(nodeInfo(node, member), member), allocated("member", "n", "C"))
	f.want("free", f.freeFor(nodeInfo(node, member), f.pod("q", 1), false), "A B")
	f.want("free for itself", f.freeFor(nodeInfo(node, member), member, false), "A B C")
}

func TestAPodDoesNotBlockItself(t *testing.T) {
	f := newFixture(t)
	node := f.node("n", "n-1", "A")
	pod := f.pod("p", 1)
	f.mustReserve(nodeInfo(node), pod)
	f.want("free for the pod itself", f.freeFor(nodeInfo(node, assumed(pod, "n")), pod, true), "A")
	f.want("free for others", f.free(nodeInfo(node, assumed(pod, "n"))), "none")
}
