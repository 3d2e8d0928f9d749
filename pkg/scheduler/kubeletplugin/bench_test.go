// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletplugin_test

import (
	"fmt"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/scheduler/kubeletplugin"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// A node with two NUMA nodes, 8 GPUs and 8 NICs.
func BenchmarkPodAllocate(b *testing.B) {
	node := types.NewNodeInfo()
	for i := range 8 {
		for resource, id := range map[string]string{"nvidia.com:gpu": "GPU-7f3a", "vendor.example:nic": "0000:3d:01"} {
			node.Allocatable[types.ResourceName(fmt.Sprintf("resource/group/numa/%d/%s/%s.%d/device", i/4, resource,
				id, i))] = 1
		}
	}
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
