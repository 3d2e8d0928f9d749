// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package gpu_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"

	"github.com/kubedevice/kubedevice/plugins/gpu"
)

func TestGPUsArePublishedOneByOneAndCounted(t *testing.T) {
	node := types.NewNodeInfoWithName("n1")
	gpu.Publish(node, gpu.Resource, []gpu.GPU{
		{ID: "GPU-a", Memory: 100, Groups: []int{3, 1}},
		{ID: "GPU-b", Memory: 200, Groups: []int{2}, Unhealthy: true},
		{ID: "GPU-c", Memory: 300},
	})
	healthy := types.ResourceList{
		"resource/group/gpugrp1/1/gpugrp0/3/gpu/GPU-a/cards":  1,
		"resource/group/gpugrp1/1/gpugrp0/3/gpu/GPU-a/memory": 100,
		"resource/group/gpugrp1/1/gpugrp0/3/gpu/GPU-a/cores":  100,
		"resource/group/gpu/GPU-c/cards":                      1,
		"resource/group/gpu/GPU-c/memory":                     300,
		"resource/group/gpu/GPU-c/cores":                      100,
	}
	want := types.NewNodeInfoWithName("n1")
	for name, quantity := range healthy {
		want.Capacity[name], want.Allocatable[name] = quantity, quantity
	}
	want.Capacity["resource/group/gpugrp0/2/gpu/GPU-b/cards"] = 1
	want.Capacity["resource/group/gpugrp0/2/gpu/GPU-b/memory"] = 200
	want.Capacity["resource/group/gpugrp0/2/gpu/GPU-b/cores"] = 100
	want.Capacity["nvidia.com/gpu"], want.KubeCap["nvidia.com/gpu"] = 3, 3
	want.Allocatable["nvidia.com/gpu"], want.KubeAlloc["nvidia.com/gpu"] = 2, 2
	if diff := cmp.Diff(want, node); diff != "" {
		t.Errorf("node (-want +got):\n%s", diff)
	}
}

func TestANodeWithoutGPUsSaysSo(t *testing.T) {
	node := types.NewNodeInfo()
	gpu.Publish(node, "example.com/gpu", nil)
	if count, ok := node.KubeCap["example.com/gpu"]; !ok || count != 0 {
		t.Errorf("KubeCap = %v", node.KubeCap)
	}
}

func TestAContainersGPUsAreFoundInWhatServesIt(t *testing.T) {
	container := &types.ContainerInfo{AllocateFrom: types.ResourceLocation{
		"resource/group/gpugrp1/0/gpugrp0/0/gpu/1/cards":  "resource/group/gpugrp1/0/gpugrp0/2/gpu/GPU-b/cards",
		"resource/group/gpugrp1/0/gpugrp0/0/gpu/0/cards":  "resource/group/gpugrp1/0/gpugrp0/2/gpu/GPU-a/cards",
		"resource/group/gpugrp1/0/gpugrp0/0/gpu/0/memory": "resource/group/gpugrp1/0/gpugrp0/2/gpu/GPU-a/memory",
		"resource/group/nic/0/ports":                      "resource/group/nic/eth0/ports",
		"resource/group/board/gpu/nic/0/ports":            "resource/group/board/gpu/nic/eth1/ports",
		"nvidia.com/gpu":                                  "nvidia.com/gpu",
	}}
	if diff := cmp.Diff([]string{"GPU-a", "GPU-b"}, gpu.Allocated(container)); diff != "" {
		t.Errorf("Allocated (-want +got):\n%s", diff)
	}
}

func FuzzSplitTakesAnyName(f *testing.F) {
	f.Add("resource/group/gpugrp1/0/gpugrp0/2/gpu/GPU-b/cards")
	f.Add("resource/group/gpu/GPU-b/cards")
	f.Add("resource/group/gpu/gpu/gpu")
	f.Add("resource/group/")
	f.Add("gpu/a/cards")
	f.Fuzz(func(t *testing.T, name string) {
		id, resource, ok := gpu.Split(types.ResourceName(name))
		if end := "/gpu/" + id + "/" + resource; ok && (len(name) < len(end) || name[len(name)-len(end):] != end) {
			t.Errorf("Split(%q) = %q, %q", name, id, resource)
		}
	})
}

func TestAGPUWithoutMemoryOfItsOwnIsPublishedWithoutIt(t *testing.T) {
	node := types.NewNodeInfo()
	gpu.Publish(node, gpu.Resource, []gpu.GPU{{ID: "GPU-a", Groups: []int{0, 0}}})
	if node.KubeCap[gpu.Resource] != 1 {
		t.Errorf("it is not counted: %v", node.KubeCap)
	}
	for name := range node.Capacity {
		if strings.HasSuffix(string(name), "/"+gpu.Memory) {
			t.Errorf("published is %s", name)
		}
	}
}
