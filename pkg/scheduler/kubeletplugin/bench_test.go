// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletplugin_test

import (
	"fmt"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/scheduler/kubeletplugin"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// numaNode returns a node whose NUMA nodes have 4 GPUs and 4 NICs each.
func numaNode(numaNodes int) *types.NodeInfo {
	node := types.NewNodeInfo()
	for i := range 4 * numaNodes {
		for resource, id := range map[string]string{"nvidia.com:gpu": "GPU-7f3a", "vendor.example:nic": "0000:3d:01"} {
			node.Allocatable[types.ResourceName(fmt.Sprintf("resource/group/numa/%d/%s/%s.%d/device", i/4, resource,
				id, i))] = 1
		}
	}
	return node
}

// A node with two NUMA nodes, 8 GPUs and 8 NICs.
func BenchmarkPodAllocate(b *testing.B) {
	node := numaNode(2)
	for name, containers := range map[string]spec{
		"counts":       {limits: list{gpu: 2, nic: 1}},
		"placeholders": {requests: list{"numa/A/nvidia.com:gpu": 2, "numa/A/vendor.example:nic": 1}},
	} {
		b.Run(name, func(b *testing.B) {
			s, pod := kubeletplugin.New(), requestOf("p", containers).Pod
			b.ReportAllocs()
			for b.Loop() {
				if err := s.PodAllocate(node, pod.Clone()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// What one placement costs in each of the two searches, on an empty node that is read and for a
// request that is compiled: two GPUs and a NIC of one NUMA node. The allocator also writes the
// names of the devices, which the group scheduler does once, for the node that is chosen.
func BenchmarkBothSearches(b *testing.B) {
	for _, numaNodes := range []int{2, 8} {
		node := numaNode(numaNodes)
		b.Run(fmt.Sprintf("numa=%d/allocator", numaNodes), func(b *testing.B) {
			s := kubeletplugin.New()
			made := requestOf("p", spec{requests: list{"numa/A/nvidia.com:gpu": 2, "numa/A/vendor.example:nic": 1}})
			devices, request := s.Read(node), s.ReadPod(made.Pod, made.Containers)
			b.ReportAllocs()
			for b.Loop() {
				if err := s.ForPod(request, devices, 0).PodAllocate(node, made.Pod.Clone()); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("numa=%d/grouptree", numaNodes), func(b *testing.B) {
			tree, err := grouptree.CompileDeviceTree(node.Allocatable, nil)
			if err != nil {
				b.Fatal(err)
			}
			request, err := grouptree.CompileRequest(&types.PodInfo{RunningContainers: map[string]types.ContainerInfo{
				"main": {DevRequests: list{
					"resource/group/numa/A/nvidia.com:gpu/0/device":     1,
					"resource/group/numa/A/nvidia.com:gpu/1/device":     1,
					"resource/group/numa/A/vendor.example:nic/0/device": 1,
				}},
			}}, nil)
			if err != nil {
				b.Fatal(err)
			}
			used, placer := tree.Dense(nil), grouptree.NewPlacer(0)
			b.ReportAllocs()
			for b.Loop() {
				if !placer.Place(tree, used, request).Fits {
					b.Fatal("it does not fit")
				}
			}
		})
	}
}
