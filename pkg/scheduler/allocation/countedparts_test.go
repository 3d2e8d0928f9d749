// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/plugins/gpu"
	gpuscheduler "github.com/kubedevice/kubedevice/plugins/gpu/scheduler"
)

// sharedGPUs returns the scheduler of GPUs, and a node with two of 1,000 bytes.
func sharedGPUs(t *testing.T) (*allocation.Set, *allocation.Inventory) {
	t.Helper()
	set := allocation.New(klog.Background(), nil,
		allocation.Named{File: "gpus.so", Plugin: gpuscheduler.New("gpus", gpu.Resource)})
	info := types.NewNodeInfoWithName("n")
	gpu.Publish(info, gpu.Resource, []gpu.GPU{
		{ID: "a", Memory: 1000, Groups: []int{0, 0}}, {ID: "b", Memory: 1000, Groups: []int{0, 0}, Unhealthy: true},
	})
	inventory, err := set.AddNode(t.Context(), info)
	if err != nil {
		t.Fatal(err)
	}
	return set, inventory
}

func TestHoldingsAreCountedOverAllDevicesOfAPod(t *testing.T) {
	set, inventory := sharedGPUs(t)
	const a, b = "resource/group/gpugrp1/0/gpugrp0/0/gpu/a/", "resource/group/gpugrp1/0/gpugrp0/0/gpu/b/"
	type list = types.ResourceList
	main := []grouptree.Container{{Name: "main"}}
	for name, test := range map[string]struct {
		held    list
		unknown bool
		want    list
	}{
		"nothing": {want: list{}},
		"a share": {
			held: list{a + "memory": 300, a + "cores": 30},
			want: list{"nvidia.com/gpumem": 300, "nvidia.com/gpucores": 30},
		},
		"memory alone":  {held: list{a + "memory": 300}, want: list{"nvidia.com/gpumem": 300}},
		"shares of two": {held: list{a + "memory": 300, b + "memory": 300}, want: list{"nvidia.com/gpumem": 600}},
		"a whole GPU": {
			held: list{a + "cards": 1},
			want: list{"nvidia.com/gpumem": 1000, "nvidia.com/gpucores": 100},
		},
		"unhealthy whole": {
			held: list{b + "cards": 1},
			want: list{"nvidia.com/gpumem": 1000, "nvidia.com/gpucores": 100},
		},
		"a whole GPU with some of its memory": {
			held: list{a + "cards": 1, a + "memory": 10},
			want: list{"nvidia.com/gpumem": 1000, "nvidia.com/gpucores": 100},
		},
		"a GPU whose groups were numbered otherwise": {
			held: list{"resource/group/gpugrp1/7/gpugrp0/9/gpu/a/cards": 1},
			want: list{"nvidia.com/gpumem": 1000, "nvidia.com/gpucores": 100},
		},
		"on an unknown node": {
			held: list{a + "cards": 1, b + "memory": 300}, unknown: true, want: list{"nvidia.com/gpumem": 300},
		},
		"a device of another kind": {held: list{"resource/group/nic/a/memory": 300}, want: list{}},
	} {
		container := types.ContainerInfo{DevRequests: list{}, AllocateFrom: types.ResourceLocation{}}
		for from, quantity := range test.held {
			container.DevRequests[from], container.AllocateFrom[from] = quantity, from
		}
		holder := allocation.NewHolder("u", &types.PodInfo{
			RunningContainers: map[string]types.ContainerInfo{"main": container},
		}, main)
		node := inventory
		if test.unknown {
			node = nil
		}
		if diff := cmp.Diff(test.want, set.PartsHeld(node, holder)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestPartsOfARequestAreKnownWithoutANode(t *testing.T) {
	set, _ := sharedGPUs(t)
	type list = types.ResourceList
	const memory, cores types.ResourceName = "nvidia.com/gpumem", "nvidia.com/gpucores"
	for name, test := range map[string]struct {
		initial, main, limits list
		least                 list
		exact, none           bool
	}{
		"nothing": {least: list{}, exact: true, none: true},
		"a NIC": {
			main: list{"nic/a/ports": 1}, limits: list{"x.example/nic": 1},
			least: list{}, exact: true, none: true,
		},
		"memory": {main: list{"gpu/a/memory": 30}, least: list{memory: 30}, exact: true},
		"memory by its name": {
			main:  list{"resource/group/gpu/a/memory": 30, "gpu/a/memory": 1},
			least: list{memory: 30}, exact: true,
		},
		"memory of two GPUs, which are counted": {
			main: list{"gpu/!0/memory": 30, "gpu/!1/memory": 30, "gpu/!1/cores": 5}, limits: list{"nvidia.com/gpu": 2},
			least: list{memory: 60, cores: 5}, exact: true,
		},
		"memory, and more GPUs": {
			main: list{"gpu/a/memory": 30}, limits: list{"nvidia.com/gpu": 2},
			least: list{memory: 30},
		},
		"a count":             {limits: list{"nvidia.com/gpu": 1}, least: list{}},
		"a count in requests": {main: list{"nvidia.com/gpu": 1}, least: list{}},
		"a card":              {main: list{"gpugrp0/A/gpu/a/cards": 1}, least: list{}},
		"a percentage": {
			main:  list{"gpu/a/memory-millionths": 500_000, "gpu/a/cores": 5},
			least: list{cores: 5},
		},
		"memory of an init container": {
			initial: list{"gpu/a/memory": 70}, main: list{"gpu/a/memory": 30}, least: list{memory: 30},
		},
	} {
		r := &request.Request{
			Pod: &types.PodInfo{
				InitContainers: map[string]types.ContainerInfo{"first": {Requests: test.initial}},
				RunningContainers: map[string]types.ContainerInfo{
					"main": {Requests: test.main, KubeRequests: test.limits},
				},
			},
			Containers: []grouptree.Container{{Name: "first", Kind: grouptree.Init}, {Name: "main"}},
		}
		least, exact, none := set.RequestedParts(r)
		if diff := cmp.Diff(test.least, least); diff != "" || exact != test.exact || none != test.none {
			t.Errorf("%s: exact %v, none %v (-want +got):\n%s", name, exact, none, diff)
		}
	}
}
