// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import (
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// renamed returns a machine whose GPUs have other names, in the same order.
func renamed(node *types.NodeInfo) *types.NodeInfo {
	other := &types.NodeInfo{Allocatable: types.ResourceList{}, Used: types.ResourceList{}}
	for name, quantity := range node.Allocatable {
		other.Allocatable[types.ResourceName(strings.Replace(string(name), "GPU-", "GPU-f00-", 1))] = quantity
	}
	for name, quantity := range node.Used {
		other.Used[types.ResourceName(strings.Replace(string(name), "GPU-", "GPU-f00-", 1))] = quantity
	}
	return other
}

func TestNodesThatLookAlikeShareTheirPlacements(t *testing.T) {
	one := busy(machine(8), 1, 2)
	two := renamed(one)
	pod := asking(8, []int{2})
	req := mustRequest(t, pod, nil)
	placer, memo := NewPlacer(0), NewMemo(16)
	invOne, invTwo := mustTree(t, one), mustTree(t, two)
	if invOne.Shape() != invTwo.Shape() {
		t.Fatal("the shapes differ")
	}
	first := memo.Place(placer, invOne, invOne.Dense(one.Used), req)
	second := memo.Place(placer, invTwo, invTwo.Dense(two.Used), req)
	if first != second {
		t.Error("the second node was placed anew")
	}
	if hits, misses := memo.Stats(); hits != 1 || misses != 1 {
		t.Errorf("%d hits and %d misses, want 1 and 1", hits, misses)
	}
	s := scenario{node: *two, pod: *pod}
	checkValid(t, &s, invTwo, req, second)
}

func TestWhatMattersForAPlacementIsToldApart(t *testing.T) {
	node, pod := machine(8), asking(8, []int{2})
	tree, req := mustTree(t, node), mustRequest(t, pod, nil)
	placer, memo := NewPlacer(0), NewMemo(16)
	memo.Place(placer, tree, tree.Dense(nil), req)
	change := func(f func(*types.NodeInfo)) *DeviceTree {
		other := machine(8)
		other.Scorer = types.ResourceScorer{}
		f(other)
		return mustTree(t, other)
	}
	first := gpuName(8, 0)
	trees := map[string]*DeviceTree{
		"a device less":            change(func(n *types.NodeInfo) { delete(n.Allocatable, first+"/cards"); delete(n.Allocatable, first+"/memory") }),
		"a resource less":          change(func(n *types.NodeInfo) { delete(n.Allocatable, first+"/memory") }),
		"another quantity":         change(func(n *types.NodeInfo) { n.Allocatable[first+"/memory"]++ }),
		"another scorer":           change(func(n *types.NodeInfo) { n.Scorer[first+"/memory"] = 2 }),
		"another level":            change(func(n *types.NodeInfo) { n.Allocatable["resource/group/nic/a/ports"] = 1 }),
		"a device in another pair": change(func(n *types.NodeInfo) { move(n, first, "resource/group/gpugrp1/0/gpugrp0/1/gpu/GPU-00") }),
	}
	for name, other := range trees {
		if other.Shape() == tree.Shape() {
			t.Errorf("%s: the shape is the same", name)
		}
	}
	request := func(f func(*types.ContainerInfo), spec ...Container) *Request {
		info := asking(8, []int{2}).RunningContainers["main"]
		f(&info)
		return mustRequest(t, &types.PodInfo{RunningContainers: map[string]types.ContainerInfo{"main": info}}, spec)
	}
	const card = "resource/group/gpugrp1/0/gpugrp0/0/gpu/00/cards"
	requests := map[string]*Request{
		"another quantity":  request(func(i *types.ContainerInfo) { i.DevRequests[card] = 0 }),
		"a request more":    request(func(i *types.ContainerInfo) { i.DevRequests["resource/group/gpugrp1/0/gpugrp0/0/gpu/00/memory"] = 1 }),
		"a scorer":          request(func(i *types.ContainerInfo) { i.Scorer = types.ResourceScorer{card: 2} }),
		"an allocation":     request(func(i *types.ContainerInfo) { i.AllocateFrom = types.ResourceLocation{card: first + "/cards"} }),
		"a sidecar":         request(func(*types.ContainerInfo) {}, Container{"main", Sidecar}),
		"an init container": mustRequest(t, &types.PodInfo{InitContainers: pod.RunningContainers}, nil),
		"two pairs":         mustRequest(t, asking(8, []int{1, 1}), nil),
	}
	for name, other := range requests {
		if other.Digest() == req.Digest() {
			t.Errorf("%s: the digest is the same", name)
		}
	}
	if got := mustRequest(t, &types.PodInfo{RunningContainers: map[string]types.ContainerInfo{"other": pod.RunningContainers["main"]}}, nil); got.Digest() != req.Digest() {
		t.Error("the name of the container changes the digest")
	}
	used := tree.Dense(nil)
	used[0] = 1
	memo.Place(placer, tree, used, req)
	memo.Place(NewPlacer(7), tree, tree.Dense(nil), req)
	if hits, misses := memo.Stats(); hits != 0 || misses != 3 {
		t.Errorf("%d hits and %d misses for three different questions", hits, misses)
	}
}

// move gives a device another path.
func move(n *types.NodeInfo, from, to types.ResourceName) {
	for name, quantity := range maps.Clone(n.Allocatable) {
		if rest, ok := strings.CutPrefix(string(name), string(from)+"/"); ok {
			delete(n.Allocatable, name)
			n.Allocatable[to+"/"+types.ResourceName(rest)] = quantity
		}
	}
}

func TestAllocationsThatWereFilledInAreNotRemembered(t *testing.T) {
	one := machine(8)
	two := renamed(one)
	pod := asking(8, []int{1})
	info := pod.RunningContainers["main"]
	info.AllocateFrom = types.ResourceLocation{}
	for request := range info.DevRequests {
		info.AllocateFrom[request] = gpuName(8, 3) + "/cards"
	}
	pod.RunningContainers["main"] = info
	req := mustRequest(t, pod, nil)
	placer, memo := NewPlacer(0), NewMemo(16)
	invOne, invTwo := mustTree(t, one), mustTree(t, two)
	if !memo.Place(placer, invOne, invOne.Dense(nil), req).Fits {
		t.Error("the node that has the device does not fit")
	}
	if memo.Place(placer, invTwo, invTwo.Dense(nil), req).Fits {
		t.Error("the node that looks alike but has not the device fits")
	}
}

func TestAMemoIsBoundedAndForgetsWithoutHarm(t *testing.T) {
	node, pod := machine(8), asking(8, []int{1})
	tree, req := mustTree(t, node), mustRequest(t, pod, nil)
	placer, memo := NewPlacer(0), NewMemo(4)
	fresh := NewPlacer(0)
	for round := range 3 {
		for state := range int64(50) {
			used := tree.Dense(types.ResourceList{gpuName(8, 0) + "/memory": state})
			if diff := cmp.Diff(fresh.Place(tree, used, req), memo.Place(placer, tree, used, req)); diff != "" {
				t.Fatalf("round %d, state %d (-fresh +memo):\n%s", round, state, diff)
			}
		}
	}
	if hits, misses := memo.Stats(); hits+misses != 150 || misses < 100 {
		t.Errorf("%d hits and %d misses of a memo with 4 entries", hits, misses)
	}
}

func TestAMemoServesManyAtOnce(t *testing.T) {
	node, pod := machine(8), asking(8, []int{2})
	tree, req := mustTree(t, node), mustRequest(t, pod, nil)
	memo := NewMemo(8)
	want := map[int64]*Placement{}
	for state := range int64(32) {
		want[state] = NewPlacer(0).Place(tree, tree.Dense(types.ResourceList{gpuName(8, 7) + "/memory": state}), req)
	}
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			placer := NewPlacer(0)
			for k := range int64(2000) {
				state := k * 7 % 32
				used := tree.Dense(types.ResourceList{gpuName(8, 7) + "/memory": state})
				if got := memo.Place(placer, tree, used, req); !cmp.Equal(got, want[state]) {
					t.Errorf("state %d: %+v, want %+v", state, got, want[state])
					return
				}
			}
		})
	}
	group.Wait()
}

func TestWhatIsRememberedCostsNoMemory(t *testing.T) {
	node, pod := busy(machine(8), 2, 5), asking(8, []int{1}, []int{1}, []int{1}, []int{1})
	tree, req := mustTree(t, node), mustRequest(t, pod, nil)
	used := tree.Dense(node.Used)
	placer, memo := NewPlacer(0), NewMemo(8)
	memo.Place(placer, tree, used, req)
	if got := testing.AllocsPerRun(100, func() { memo.Place(placer, tree, used, req) }); got != 0 {
		t.Errorf("%v allocations for a placement that is remembered, want 0", got)
	}
	if got := testing.AllocsPerRun(100, func() { placer.Place(tree, used, req) }); got > 2 {
		t.Errorf("%v allocations for a new placement, want the placement's own 2", got)
	}
}
