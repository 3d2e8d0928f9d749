// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"

	"github.com/kubedevice/kubedevice/plugins/gpu"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNodesAreLiftedToTwoLevels(t *testing.T) {
	tests := map[string]struct{ capacity, allocatable, kubeAlloc, want types.ResourceList }{
		"a node with both levels stays": {
			allocatable: types.ResourceList{"resource/group/gpugrp1/0/gpugrp0/1/gpu/a/cards": 1, "nvidia.com/gpu": 1},
			want:        types.ResourceList{"resource/group/gpugrp1/0/gpugrp0/1/gpu/a/cards": 1, "nvidia.com/gpu": 1},
		},
		"close groups stand in one wide group": {
			allocatable: types.ResourceList{
				"resource/group/gpugrp0/0/gpu/a/cards": 1,
				"resource/group/gpugrp0/1/gpu/b/cards": 1,
				"resource/group/gpugrp0/1/links":       4,
			},
			want: types.ResourceList{
				"resource/group/gpugrp1/0/gpugrp0/0/gpu/a/cards": 1,
				"resource/group/gpugrp1/0/gpugrp0/1/gpu/b/cards": 1,
				"resource/group/gpugrp1/0/gpugrp0/1/links":       4,
			},
		},
		"GPUs without groups are each by themselves, under a name that no other GPU changes": {
			allocatable: types.ResourceList{
				"resource/group/gpu/a/cards":  1,
				"resource/group/gpu/a/memory": 5,
				"resource/group/gpu/b/cards":  1,
			},
			want: types.ResourceList{
				"resource/group/gpugrp1/0/gpugrp0/a/gpu/a/cards":  1,
				"resource/group/gpugrp1/0/gpugrp0/a/gpu/a/memory": 5,
				"resource/group/gpugrp1/0/gpugrp0/b/gpu/b/cards":  1,
			},
		},
		"an instance without a GPU is on one of its own": {
			allocatable: types.ResourceList{"resource/group/ci/a/mig-1g.5gb": 1},
			want: types.ResourceList{
				"resource/group/gpugrp1/0/gpugrp0/a/gpu/a/gi/a/ci/a/mig-1g.5gb": 1,
			},
		},
		"a node with instances alone has no GPUs, also when it counts some": {
			allocatable: types.ResourceList{
				"resource/group/gpugrp1/0/gpugrp0/1/gpu/a/gi/2/ci/b/cards": 1, "nvidia.com/gpu": 1,
			},
			want: types.ResourceList{
				"resource/group/gpugrp1/0/gpugrp0/1/gpu/a/gi/2/ci/b/cards": 1, "nvidia.com/gpu": 1,
			},
		},
		"a count becomes GPUs": {
			allocatable: types.ResourceList{"nvidia.com/gpu": 2},
			want: types.ResourceList{
				"nvidia.com/gpu": 2,
				"resource/group/gpugrp1/0/gpugrp0/0/gpu/0/cards": 1,
				"resource/group/gpugrp1/0/gpugrp0/1/gpu/1/cards": 1,
			},
		},
		"so does a count that only the node's status has": {
			kubeAlloc: types.ResourceList{"nvidia.com/gpu": 1, "cpu": 8},
			want:      types.ResourceList{"resource/group/gpugrp1/0/gpugrp0/0/gpu/0/cards": 1},
		},
		"a count of devices that are not allocatable does not": {
			capacity:    types.ResourceList{"resource/group/gpu/a/cards": 1},
			allocatable: types.ResourceList{"nvidia.com/gpu": 1}, want: types.ResourceList{"nvidia.com/gpu": 1},
		},
		"a count in the status of devices that are being withdrawn does not": {
			capacity: types.ResourceList{"nvidia.com/gpu": 0}, kubeAlloc: types.ResourceList{"nvidia.com/gpu": 2},
			want: types.ResourceList{},
		},
		"other devices stay": {
			allocatable: types.ResourceList{"resource/group/board/gpu/nic/a/ports": 1, "resource/group": 1, "gpu": 1},
			want:        types.ResourceList{"resource/group/board/gpu/nic/a/ports": 1, "resource/group": 1, "gpu": 1},
		},
		"a node without anything has nothing": {want: types.ResourceList{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			node := (&types.NodeInfo{
				Name: "n1", Capacity: test.capacity, Allocatable: test.allocatable, KubeAlloc: test.kubeAlloc,
			}).Clone()
			plugin := New("gpus", gpu.Resource)
			plugin.AddNode("n1", node)
			if diff := cmp.Diff(test.want, node.Allocatable); diff != "" {
				t.Errorf("allocatable (-want +got):\n%s", diff)
			}
			plugin.AddNode("n1", node)
			if diff := cmp.Diff(test.want, node.Allocatable); diff != "" {
				t.Errorf("lifted once more (-want +got):\n%s", diff)
			}
		})
	}
}

func TestACountIsBoundedForEveryReportOfANode(t *testing.T) {
	node := types.NewNodeInfo()
	node.Allocatable["nvidia.com/gpu"] = 1 << 60
	New("gpus", gpu.Resource).AddNode("n1", node)
	if len(node.Allocatable) != maxCounted+1 {
		t.Errorf("%d resources", len(node.Allocatable))
	}
}

func TestTwoGPUsAreAPairUntilNoPairIsLeft(t *testing.T) {
	c := newCluster(t)
	c.add("n1", "ab cd")

	first, _ := c.place("n1", counting(1))
	pair, _ := c.place("n1", counting(2))
	if !slices.Contains([]string{"ab", "cd"}, pair) || strings.Contains(pair, first) {
		t.Fatalf("one GPU is %q, two are %q", first, pair)
	}
	if gpus, reason := c.place("n1", counting(2)); reason == "" {
		t.Errorf("one GPU is left, two were given: %s", gpus)
	}
	if last, reason := c.place("n1", counting(1)); reason != "" || strings.Contains(pair+first, last) {
		t.Errorf("the last GPU is %q, %s", last, reason)
	}
}

func TestTwoGPUsThatAreNoPairAreGivenToWhoGoesWithoutTopology(t *testing.T) {
	c := newCluster(t)
	c.add("n1", "ab cd")
	// One GPU of each pair is in use.
	for _, taken := range []string{"a", "c"} {
		holder := types.NewPodInfo()
		pair := map[string]string{"a": "0", "c": "1"}[taken]
		name := types.ResourceName("resource/group/gpugrp1/0/gpugrp0/" + pair + "/gpu/" + taken + "/cards")
		holder.RunningContainers["app"] = types.ContainerInfo{
			DevRequests:  types.ResourceList{name: 1},
			AllocateFrom: types.ResourceLocation{name: name},
		}
		c.holders["n1"] = append(c.holders["n1"], holder)
	}
	if gpus, reason := c.place("n1", counting(2)); reason == "" {
		t.Errorf("no pair is left, but the pod got %s", gpus)
	}
	if gpus, reason := c.place("n1", requesting(2, types.ResourceList{"gpu/gpu-generate-topology": 0})); gpus != "bd" {
		t.Errorf("got %q, %s, want bd", gpus, reason)
	}
}

func TestFourGPUsAreTwoPairsOfOneSocket(t *testing.T) {
	c := newCluster(t)
	c.add("n1", "ab cd | ef gh")
	for range 2 {
		if gpus, reason := c.place("n1", counting(4)); gpus != "abcd" && gpus != "efgh" {
			t.Errorf("got %q, %s", gpus, reason)
		}
	}
}

func TestHalvesOfMemoryShareOneGPU(t *testing.T) {
	c := newCluster(t)
	c.add("n1", "ab")
	half := requesting(0, types.ResourceList{"gpu/a/memory": 8 << 30})

	first, _ := c.place("n1", half)
	second, reason := c.place("n1", half)
	if first == "" || second != first {
		t.Errorf("the first half is of %q, the second of %q, %s", first, second, reason)
	}
	if third, _ := c.place("n1", half); third == "" || third == first {
		t.Errorf("the third half is of %q, the GPU of the first two is %q", third, first)
	}
}

func TestAWholeGPUIsSharedWithNoPod(t *testing.T) {
	c := newCluster(t)
	c.add("n1", "ab")
	share := requesting(0, types.ResourceList{"gpu/a/memory": 1 << 30})

	shared, _ := c.place("n1", share)
	alone, reason := c.place("n1", counting(1))
	if alone == "" || alone == shared {
		t.Fatalf("%q is shared, %q was given to be had alone, %s", shared, alone, reason)
	}
	if gpus, reason := c.place("n1", counting(1)); reason == "" {
		t.Errorf("all GPUs are in use, but one was given: %s", gpus)
	}
	if again, reason := c.place("n1", share); again != shared {
		t.Errorf("the next share is of %q, %s, want %q", again, reason, shared)
	}
}

func TestAHolderOfACardHoldsItsMemory(t *testing.T) {
	c := newCluster(t)
	c.add("n1", "a")
	whole := requesting(0, types.ResourceList{"gpu/a/cards": 1, "gpu/a/memory": 1 << 30})
	if gpus, reason := c.place("n1", whole); gpus != "a" {
		t.Fatalf("the card and some of its memory are of %q, %s", gpus, reason)
	}
	if gpus, _ := c.place("n1", requesting(0, types.ResourceList{"gpu/a/memory": 1})); gpus != "" {
		t.Errorf("a share of %q was given, whose card another pod has", gpus)
	}
}

// A GPU is shared until either its memory or its cores are used up.
func TestSharesOfAGPUHaveNoMoreThanAllOfItsCores(t *testing.T) {
	c := newCluster(t)
	c.add("n1", "ab")
	share := func(cores int64) *types.PodInfo {
		requests := types.ResourceList{"gpu/a/memory": 1 << 30}
		if cores > 0 {
			requests["gpu/a/cores"] = cores
		}
		return requesting(0, requests)
	}
	first, _ := c.place("n1", share(60))
	second, _ := c.place("n1", share(60))
	if first == "" || second == "" || first == second {
		t.Fatalf("60 cores are of %q, and 60 others of %q", first, second)
	}
	if gpus, _ := c.place("n1", share(41)); gpus != "" {
		t.Errorf("41 cores of %q are given, and it has 40", gpus)
	}
	for range 2 {
		if _, reason := c.place("n1", share(40)); reason != "" {
			t.Error(reason)
		}
	}
	if _, reason := c.place("n1", share(0)); reason != "" {
		t.Errorf("a share without cores does not fit: %s", reason)
	}
	if gpus, _ := c.place("n1", share(1)); gpus != "" {
		t.Errorf("a core of %q is given, and all are used", gpus)
	}
}

func TestReturningUndoesTaking(t *testing.T) {
	c := newCluster(t)
	c.add("n1", "ab")
	for _, pod := range []*types.PodInfo{counting(1), requesting(0, types.ResourceList{"gpu/a/memory": 1 << 30})} {
		if _, reason := c.place("n1", pod); reason != "" {
			t.Fatal(reason)
		}
	}
	node := c.nodes["n1"].Clone()
	for _, holder := range c.holders["n1"] {
		if err := c.plugin.TakePodResources(node, holder); err != nil {
			t.Fatal(err)
		}
	}
	if len(node.Used) != 3 { // the memory and cores of one, and the card of the other
		t.Errorf("used: %v", node.Used)
	}
	for _, holder := range c.holders["n1"] {
		if err := c.plugin.ReturnPodResources(node, holder); err != nil {
			t.Fatal(err)
		}
	}
	for name, quantity := range node.Used {
		if quantity != 0 {
			t.Errorf("%d of %s are left", quantity, name)
		}
	}
}

func TestTheTopologyIsThatOfTheBestNodeOfAll(t *testing.T) {
	c := newCluster(t)
	c.add("pairs", "ab cd")
	if gpus, _ := c.place("pairs", counting(4)); gpus != "abcd" {
		t.Fatalf("got %q", gpus)
	}
	c.holders = map[string][]*types.PodInfo{}

	c.add("switch", "abcdefgh")
	if gpus, reason := c.place("pairs", counting(4)); reason == "" {
		t.Errorf("a better node is there, but the pod got %s on this one", gpus)
	}
	if gpus, reason := c.place("switch", counting(4)); len(gpus) != 4 {
		t.Errorf("got %q, %s", gpus, reason)
	}

	c.plugin.RemoveNode("switch")
	if gpus, reason := c.place("pairs", counting(4)); gpus != "abcd" {
		t.Errorf("got %q, %s", gpus, reason)
	}
}

// One node claims to have eight GPUs in one group, and never has them free.
func TestAPodThatHasWaitedTakesTheBestGPUsOfAnyNode(t *testing.T) {
	for _, count := range []int64{1, 2, 4, 8} {
		c := newCluster(t)
		c.add("honest", "ab cd | ef gh")
		c.add("claims", "abcdefghi")
		if gpus, reason := c.place("honest", counting(count)); (reason == "") != (count <= 2) {
			t.Errorf("%d GPUs before the wait: %q, %s", count, gpus, reason)
		}
		c.holders = map[string][]*types.PodInfo{}
		c.after = true
		if gpus, reason := c.place("honest", counting(count)); int64(len(gpus)) != count {
			t.Errorf("%d GPUs after the wait: %q, %s", count, gpus, reason)
		}
		if gpus, reason := c.place("claims", counting(count)); int64(len(gpus)) != count {
			t.Errorf("%d GPUs of the other node after the wait: %q, %s", count, gpus, reason)
		}
		if gpus, reason := c.place("honest", counting(9)); reason == "" {
			t.Errorf("nine GPUs of eight: %q", gpus)
		}
	}
}

func TestThePluginDescribesItself(t *testing.T) {
	plugin := New("simgpu", "example.com/gpu")
	if plugin.GetName() != "simgpu" || !plugin.UsingGroupScheduler() || !plugin.ConcurrentSafe() {
		t.Errorf("%+v", plugin)
	}
	if diff := cmp.Diff([]types.ResourceName{"example.com/gpu"}, plugin.ClaimedResources()); diff != "" {
		t.Error(diff)
	}
	if got := plugin.Words().Levels["gpu"].Many; got != "GPUs" {
		t.Errorf("several are called %q", got)
	}
}
