// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import (
	"fmt"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// machine returns a node with 8 or 64 GPUs of 80 GiB. 8 stand in two sockets of two pairs, 64 in 4
// racks of 4 boards of 4.
func machine(gpus int) *types.NodeInfo {
	node := &types.NodeInfo{Allocatable: types.ResourceList{}, Used: types.ResourceList{}}
	for g := range gpus {
		name := gpuName(gpus, g)
		node.Allocatable[name+"/cards"] = 1
		node.Allocatable[name+"/memory"] = 80 << 30
	}
	return node
}

// gpuName returns the path of a GPU of a machine.
func gpuName(gpus, g int) types.ResourceName {
	if gpus == 8 {
		return types.ResourceName(fmt.Sprintf("resource/group/gpugrp1/%d/gpugrp0/%d/gpu/GPU-%02d", g/4, g/2, g))
	}
	return types.ResourceName(
		fmt.Sprintf("resource/group/rack/%d/gpugrp1/%02d/gpugrp0/%02d/gpu/GPU-%02d", g/16, g/8, g/4, g),
	)
}

// busy marks GPUs of a machine as used.
func busy(node *types.NodeInfo, gpus ...int) *types.NodeInfo {
	total := len(node.Allocatable) / 2
	for _, g := range gpus {
		node.Used[gpuName(total, g)+"/cards"] = 1
		node.Used[gpuName(total, g)+"/memory"] = 80 << 30
	}
	return node
}

// states are the used GPUs of the machines of the benchmarks.
func states(gpus int) map[string][]int {
	var half, fragmented []int
	for g := range gpus {
		if g < gpus/2 {
			half = append(half, g)
		}
		if g%2 == 0 && g%8 != 0 {
			fragmented = append(fragmented, g)
		}
	}
	return map[string][]int{"empty": nil, "half-full": half, "fragmented": fragmented}
}

// podRequesting returns a pod of one container that requests GPUs: for each wide group (a socket)
// the sizes of the close groups (pairs) in it. The paths have the levels of a machine with this
// number of GPUs.
func podRequesting(gpus int, sockets ...[]int) *types.PodInfo {
	requests := types.ResourceList{}
	for s, pairs := range sockets {
		for p, size := range pairs {
			for g := range size {
				path := fmt.Sprintf("resource/group/gpugrp1/%d/gpugrp0/%d/gpu/%02d/cards", s, p, g)
				if gpus == 64 {
					path = fmt.Sprintf("resource/group/rack/0/gpugrp1/%d/gpugrp0/%d/gpu/%02d/cards", s, p, g)
				}
				requests[types.ResourceName(path)] = 1
			}
		}
	}
	return &types.PodInfo{RunningContainers: map[string]types.ContainerInfo{"main": {DevRequests: requests}}}
}

// placementBenchmarks are pods by the machine they are for.
var placementBenchmarks = []struct {
	gpus    int
	name    string
	sockets [][]int
}{
	{8, "1", [][]int{{1}}},
	{8, "2-in-a-pair", [][]int{{2}}},
	{8, "4", [][]int{{1}, {1}, {1}, {1}}},
	{8, "4-in-a-socket", [][]int{{2, 2}}},
	{64, "1", [][]int{{1}}},
	{64, "4", [][]int{{1}, {1}, {1}, {1}}},
	{64, "8-in-two-sockets", [][]int{{2, 2}, {2, 2}}},
}

// BenchmarkPlacement places a pod on one node, with a compiled tree and request.
func BenchmarkPlacement(b *testing.B) {
	for _, bench := range placementBenchmarks {
		for _, state := range []string{"empty", "half-full", "fragmented"} {
			node := busy(machine(bench.gpus), states(bench.gpus)[state]...)
			tree := mustTree(b, node)
			req := mustRequest(b, podRequesting(bench.gpus, bench.sockets...), nil)
			used, placer := tree.Dense(node.Used), NewPlacer(0)
			b.Run(fmt.Sprintf("devices=%d/%s/pod=%s", bench.gpus, state, bench.name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					placer.Place(tree, used, req)
				}
			})
		}
	}
}

// BenchmarkCompile compiles a tree, as for each change of a node, and a request, as for each pod.
func BenchmarkCompile(b *testing.B) {
	for _, gpus := range []int{8, 64} {
		node, pod := machine(gpus), podRequesting(gpus, []int{2, 2})
		b.Run(fmt.Sprintf("tree/devices=%d", gpus), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				mustTree(b, node)
			}
		})
		b.Run(fmt.Sprintf("request/devices=%d", gpus), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				mustRequest(b, pod, nil)
			}
		})
	}
}

// BenchmarkStepLimit searches without success until the step limit: the maximum cost of a
// placement.
func BenchmarkStepLimit(b *testing.B) {
	node, pod := hopeless()
	tree := mustTree(b, node)
	req := mustRequest(b, pod, nil)
	used := tree.Dense(node.Used)
	placer := NewPlacer(0)
	b.ReportAllocs()
	for b.Loop() {
		if p := placer.Place(tree, used, req); !p.LimitHit {
			b.Fatal("the search ended before the limit")
		}
	}
}

// hopeless returns 64 GPUs in three levels, all with different free memory, and a pod that requests
// many different parts of memory, for which there is just too little space: only a search can find
// that out.
func hopeless() (*types.NodeInfo, *types.PodInfo) {
	node := machine(64)
	for g := range 64 {
		node.Used[gpuName(64, g)+"/memory"] = 80<<30 - int64(1000+g)
	}
	requests := types.ResourceList{}
	for k := range 64 {
		key := fmt.Sprintf("rack/%d/gpugrp1/%d/gpugrp0/%d/gpu/%d/memory", k/16, k/8, k/4, k)
		types.AddGroupResource(requests, key, int64(999+(k*37)%64))
	}
	return node, &types.PodInfo{RunningContainers: map[string]types.ContainerInfo{"main": {DevRequests: requests}}}
}
