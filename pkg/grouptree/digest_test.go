// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import (
	"maps"
	"strings"
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

func TestPlacesAlikeOnNodesOfEqualShape(t *testing.T) {
	one := busy(machine(8), 1, 2)
	two := renamed(one)
	pod := podRequesting(8, []int{2})
	req, placer := mustRequest(t, pod, nil), NewPlacer(0)
	treeOne, treeTwo := mustTree(t, one), mustTree(t, two)
	if treeOne.Shape() != treeTwo.Shape() {
		t.Fatal("the shapes differ")
	}
	first := placer.Place(treeOne, treeOne.Dense(one.Used), req)
	second := placer.Place(treeTwo, treeTwo.Dense(two.Used), req)
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("placements (-first +second):\n%s", diff)
	}
	s := scenario{node: *two, pod: *pod}
	checkValid(t, &s, treeTwo, req, second)
}

func TestDigestCoversAllThatAffectsPlacement(t *testing.T) {
	node, pod := machine(8), podRequesting(8, []int{2})
	tree, req := mustTree(t, node), mustRequest(t, pod, nil)
	change := func(f func(*types.NodeInfo)) *DeviceTree {
		other := machine(8)
		other.Scorer = types.ResourceScorer{}
		f(other)
		return mustTree(t, other)
	}
	first := gpuName(8, 0)
	trees := map[string]*DeviceTree{
		"one device less": change(
			func(n *types.NodeInfo) { delete(n.Allocatable, first+"/cards"); delete(n.Allocatable, first+"/memory") },
		),
		"one resource less": change(func(n *types.NodeInfo) { delete(n.Allocatable, first+"/memory") }),
		"another quantity":  change(func(n *types.NodeInfo) { n.Allocatable[first+"/memory"]++ }),
		"another scorer":    change(func(n *types.NodeInfo) { n.Scorer[first+"/memory"] = 2 }),
		"another level":     change(func(n *types.NodeInfo) { n.Allocatable["resource/group/nic/a/ports"] = 1 }),
		"a device in another pair": change(
			func(n *types.NodeInfo) { move(n, first, "resource/group/gpugrp1/0/gpugrp0/1/gpu/GPU-00") },
		),
	}
	for name, other := range trees {
		if other.Shape() == tree.Shape() {
			t.Errorf("%s: the shape is the same", name)
		}
	}
	request := func(f func(*types.ContainerInfo), spec ...Container) *Request {
		info := podRequesting(8, []int{2}).RunningContainers["main"]
		f(&info)
		return mustRequest(t, &types.PodInfo{RunningContainers: map[string]types.ContainerInfo{"main": info}}, spec)
	}
	const card = "resource/group/gpugrp1/0/gpugrp0/0/gpu/00/cards"
	requests := map[string]*Request{
		"another quantity": request(func(i *types.ContainerInfo) { i.DevRequests[card] = 0 }),
		"one more request": request(
			func(i *types.ContainerInfo) { i.DevRequests["resource/group/gpugrp1/0/gpugrp0/0/gpu/00/memory"] = 1 },
		),
		"a scorer": request(func(i *types.ContainerInfo) { i.Scorer = types.ResourceScorer{card: 2} }),
		"an allocation": request(
			func(i *types.ContainerInfo) { i.AllocateFrom = types.ResourceLocation{card: first + "/cards"} },
		),
		"a sidecar":         request(func(*types.ContainerInfo) {}, Container{"main", Sidecar}),
		"an init container": mustRequest(t, &types.PodInfo{InitContainers: pod.RunningContainers}, nil),
		"two pairs":         mustRequest(t, podRequesting(8, []int{1, 1}), nil),
	}
	for name, other := range requests {
		if other.Digest() == req.Digest() {
			t.Errorf("%s: the digest is the same", name)
		}
	}
	if got := mustRequest(
		t, &types.PodInfo{RunningContainers: map[string]types.ContainerInfo{"other": pod.RunningContainers["main"]}},
		nil,
	); got.Digest() != req.Digest() {
		t.Error("the name of the container changes the digest")
	}
}

// Requests are compiled in the order of their names, in which "a-b/…" comes before "a/…", although
// "a" comes before "a-b".
func TestSeparatesGroupsWithACommonNamePrefix(t *testing.T) {
	request := func(names ...string) *Request {
		info := types.ContainerInfo{DevRequests: types.ResourceList{}}
		for i, group := range names {
			for _, gpu := range names {
				path := types.ResourceName("resource/group/gpugrp0/" + group + "/gpu/" + gpu + "/")
				info.DevRequests[path+"cards"] = 1
				info.DevRequests[path+"memory"] = int64(i)
			}
			info.DevRequests[types.ResourceName("resource/group/gpugrp0/"+group+"/nic/"+group+"/ports")] = 1
		}
		return mustRequest(t, &types.PodInfo{RunningContainers: map[string]types.ContainerInfo{"main": info}}, nil)
	}
	plain, alike := request("1", "2", "3", "4", "5"), request("a", "a-b", "a.b", "ab", "gpu")
	if got, want := len(alike.groups), 1+5+5*(5+1); got != want || alike.Digest() != plain.Digest() {
		t.Errorf("%d groups, want %d; equal digests: %v", got, want, alike.Digest() == plain.Digest())
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
