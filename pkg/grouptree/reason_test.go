// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// gpuNames has no display name for gpugrp1, whose name then appears.
var gpuNames = devicescheduler.Words{
	Levels: map[string]devicescheduler.Noun{
		"gpu":     {One: "GPU", Many: "GPUs"},
		"gpugrp0": {One: "NVLink pair", Many: "NVLink pairs"},
	},
	Units: map[string]devicescheduler.Unit{"gpu/memory": devicescheduler.Bytes},
}

func TestReasonsNameWhatIsMissing(t *testing.T) {
	type containers = map[string]types.ContainerInfo
	running := func(list types.ResourceList) types.PodInfo {
		return types.PodInfo{RunningContainers: containers{"main": needs(list)}}
	}
	memory := func(g int, quantity int64) types.ResourceList {
		return types.ResourceList{gpuName(8, g) + "/memory": quantity}
	}
	used := func(lists ...types.ResourceList) *types.NodeInfo {
		node := machine(8)
		for _, list := range lists {
			Take(node.Used, list)
		}
		return node
	}
	var almostFull []types.ResourceList
	for g := range 8 {
		almostFull = append(almostFull, memory(g, int64(60+g)<<30))
	}
	typed := machine(8)
	typed.Allocatable[gpuName(8, 0)+"/enumType"] = 3
	for name, test := range map[string]struct {
		node *types.NodeInfo
		pod  types.PodInfo
		want string
	}{
		"no device is free": {
			busy(machine(8), 0, 1, 2, 3, 4, 5, 6, 7), *podRequesting(8, []int{1}), "have no free GPU",
		},
		"the node has too few free": {
			busy(machine(8), 0, 1, 2, 3, 4), *podRequesting(8, []int{1}, []int{1}, []int{1}, []int{1}),
			"have fewer than 4 free GPUs (best: 3 free of 8)",
		},
		"no pair has enough free": {
			busy(machine(8), 0, 2, 4, 6), *podRequesting(8, []int{2}),
			"have fewer than 2 free GPUs in one NVLink pair (best: 1 free of 2)",
		},
		"no socket has enough free": {
			busy(machine(8), 0, 7), *podRequesting(8, []int{2, 2}),
			"have fewer than 4 free GPUs in one gpugrp1 (best: 3 free of 4)",
		},
		"there are too few free pairs": {
			busy(machine(8), 0, 2), *podRequesting(8, []int{2}, []int{2}, []int{2}),
			"have fewer than 3 gpugrp1 with 2 free GPUs each (best: 2)",
		},
		"no device has enough memory": {
			used(almostFull...), running(types.ResourceList{"gpugrp1/0/gpugrp0/0/gpu/a/memory": 40 << 30}),
			"have no GPU with 40 GiB of memory free (best: 20 GiB free of 80 GiB)",
		},
		"no device is so large, and all devices are full": {
			busy(machine(8), 0, 1, 2, 3, 4, 5, 6, 7),
			running(types.ResourceList{"gpugrp1/0/gpugrp0/0/gpu/a/memory": 160 << 30}),
			"have no GPU with 160 GiB of memory (the largest has 80 GiB)",
		},
		"the node has too little memory in all": {
			used(almostFull...), running(types.ResourceList{
				"gpugrp1/0/gpugrp0/0/gpu/a/memory": 20 << 30, "gpugrp1/0/gpugrp0/0/gpu/b/memory": 20 << 30,
				"gpugrp1/0/gpugrp0/0/gpu/c/memory": 20 << 30,
				"gpugrp1/0/gpugrp0/0/gpu/d/memory": 20 << 30, "gpugrp1/0/gpugrp0/0/gpu/e/memory": 20 << 30,
				"gpugrp1/0/gpugrp0/0/gpu/f/memory": 20 << 30, "gpugrp1/0/gpugrp0/0/gpu/g/memory": 20 << 30,
			}), "have less than 140 GiB of GPU memory free (best: 132 GiB free of 640 GiB)",
		},
		"no pair has enough memory": {
			used(almostFull...),
			running(
				types.ResourceList{
					"gpugrp1/0/gpugrp0/0/gpu/a/memory": 20 << 30, "gpugrp1/0/gpugrp0/0/gpu/b/memory": 20 << 30,
				},
			),
			"have no NVLink pair with 40 GiB of GPU memory free (best: 39 GiB free of 160 GiB)",
		},
		"cards and memory are free on different devices": {
			used(types.ResourceList{
				gpuName(8, 1) + "/cards": 1, gpuName(8, 2) + "/cards": 1, gpuName(8, 3) + "/cards": 1,
				gpuName(8, 4) + "/cards": 1,
				gpuName(8, 5) + "/cards": 1, gpuName(8, 6) + "/cards": 1, gpuName(8, 7) + "/cards": 1,
			}, memory(0, 80<<30)),
			running(
				types.ResourceList{"gpugrp1/0/gpugrp0/0/gpu/a/cards": 1, "gpugrp1/0/gpugrp0/0/gpu/a/memory": 40 << 30},
			),
			"have no GPU with everything free that is requested of one",
		},
		"no device is of the type": {
			typed, running(types.ResourceList{"gpugrp1/0/gpugrp0/0/gpu/a/enumType": 12}),
			"have no GPU enumType with any bit of 0xc",
		},
		"the level is unknown": {
			machine(8), running(types.ResourceList{"gpugrp1/0/nvlink/0/gpu/a/cards": 1}), "have no nvlink",
		},
		"the resource is unknown": {
			machine(8), running(types.ResourceList{"gpugrp1/0/gpugrp0/0/gpu/a/cores": 1}), "have no GPU cores",
		},
		"the resource of the node itself is unknown": {
			machine(8), running(types.ResourceList{"power": 1}), "have no power",
		},
		"an earlier allocation is gone": {
			machine(8), types.PodInfo{RunningContainers: containers{"main": {
				DevRequests: devices(types.ResourceList{"gpugrp1/0/gpugrp0/0/gpu/a/cards": 1}),
				AllocateFrom: types.ResourceLocation{
					"resource/group/gpugrp1/0/gpugrp0/0/gpu/a/cards": gpuName(8, 0) + "-old/cards",
				},
			}}}, "have lost the GPU that was allocated before",
		},
		"an init container requests too much": {
			busy(machine(8), 0, 1, 2, 3, 4, 5),
			types.PodInfo{InitContainers: podRequesting(8, []int{1}, []int{1}, []int{1}).RunningContainers},
			"have fewer than 3 free GPUs (best: 2 free of 8)",
		},
		"the free devices are in different groups": {
			used(
				memory(0, 40<<30), memory(1, 40<<30), memory(2, 80<<30), memory(3, 80<<30), memory(4, 80<<30),
				memory(5, 80<<30), memory(6, 80<<30), memory(7, 80<<30),
			),
			running(
				types.ResourceList{
					"gpugrp1/0/gpugrp0/0/gpu/a/memory": 30 << 30, "gpugrp1/0/gpugrp0/0/gpu/b/memory": 25 << 30,
					"gpugrp1/0/gpugrp0/0/gpu/c/memory": 24 << 30,
				},
			),
			`have free devices, but not in the groups that container "main" requests`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			tree, req := mustTree(t, test.node), mustRequest(t, &test.pod, nil)
			dense := tree.Dense(test.node.Used)
			p := NewPlacer(0).Place(tree, dense, req)
			reason := Explain(tree, dense, req, p)
			if p.Fits || reason == nil {
				t.Fatalf("fits %v, reason %v", p.Fits, reason)
			}
			if got := reason.Text(gpuNames); got != test.want {
				t.Errorf("reason %q, want %q", got, test.want)
			}
		})
	}
}

func TestReasonContainsTheNumbers(t *testing.T) {
	node, pod := busy(machine(8), 0, 2, 4, 6), podRequesting(8, []int{2})
	tree, req := mustTree(t, node), mustRequest(t, pod, nil)
	dense := tree.Dense(node.Used)
	p := NewPlacer(0).Place(tree, dense, req)
	name, requested, inUse, capacity := Explain(tree, dense, req, p).GetInfo()
	if name != "resource/group/gpugrp1/0/gpugrp0/0/gpu/00/cards" || requested != 2 || inUse != 4 || capacity != 8 {
		t.Errorf("%s: %d requested, %d used of %d; want 2 requested, 4 used of 8", name, requested, inUse, capacity)
	}
	if got := Explain(tree, tree.Dense(nil), req, NewPlacer(0).Place(tree, tree.Dense(nil), req)); got != nil {
		t.Errorf("a pod that fits has the reason %v", got)
	}
}

func TestHumanFormatsQuantities(t *testing.T) {
	for quantity, want := range map[int64]string{
		0: "0", 7: "7", 1<<20 - 1: "1048575", 1 << 20: "1 MiB", 1536 << 20: "1.5 GiB", 80 << 30: "80 GiB",
		1<<40 - 1: "1023.9 GiB", 1 << 62: "4 EiB",
	} {
		if got := Human(quantity); got != want {
			t.Errorf("Human(%d) is %q, want %q", quantity, got, want)
		}
	}
}

func TestReasonsUseThePluginsUnits(t *testing.T) {
	reason := Reason{
		Cause:    Small,
		Level:    "nic",
		Device:   "nic",
		Resource: "bandwidth",
		Needed:   100_000_000,
		Total:    25_000_000,
	}
	names := devicescheduler.Words{Units: map[string]devicescheduler.Unit{"nic/bandwidth": "Mbit/s"}}
	const want = "have no nic with 100000000 Mbit/s of bandwidth (the largest has 25000000 Mbit/s)"
	if got := reason.Text(names); got != want {
		t.Errorf("reason %q, want %q", got, want)
	}
}

func TestReasonIsShortWithLongNames(t *testing.T) {
	long := strings.Repeat("é", 10_000)
	for _, reason := range []Reason{
		{Cause: Missing, Level: long},
		{Cause: Small, Level: long, Device: long, Resource: long},
		{Cause: Insufficient, Level: long, Device: "gpu", Resource: long},
		{Cause: Fragmented, Container: long},
	} {
		if got := reason.String(); len(got) > 256 {
			t.Errorf("a reason of %d bytes: %.100s…", len(got), got)
		}
	}
}

// Two nodes lack the same resource, one node more of it than the other: their reasons are of one
// kind, and the text of the nearer node stands for both.
func TestReasonsOfOneKindDifferOnlyInNumbers(t *testing.T) {
	explain := func(busyGPUs ...int) *Reason {
		node, pod := busy(machine(8), busyGPUs...), podRequesting(8, []int{2})
		tree, req := mustTree(t, node), mustRequest(t, pod, nil)
		dense := tree.Dense(node.Used)
		return Explain(tree, dense, req, NewPlacer(0).Place(tree, dense, req))
	}
	near, far, other := explain(0, 2, 4, 6), explain(0, 2, 4, 5, 6), explain(0, 1, 2, 3, 4, 5, 6)
	if diff := cmp.Diff(near.Kind(), far.Kind()); diff != "" {
		t.Errorf("kinds differ (-near +far):\n%s", diff)
	}
	if near.Kind() == other.Kind() {
		t.Errorf("%q and %q are of one kind", near, other)
	}
	if near.Nearer(far) || far.Nearer(near) {
		t.Errorf("%q and %q say the same of their best pair", near, far)
	}
	better := *near
	better.Total++
	if !better.Nearer(near) || near.Nearer(&better) {
		t.Errorf("of %q and %q not exactly the first is nearer", &better, near)
	}
}
