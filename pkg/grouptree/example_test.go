// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree_test

import (
	"fmt"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// A node has two pairs of GPUs; one GPU is in use. A pod requests two GPUs of one pair, and then
// four GPUs.
func Example() {
	tree, err := grouptree.CompileDeviceTree(types.ResourceList{
		"resource/group/gpugrp0/0/gpu/GPU-a/cards": 1,
		"resource/group/gpugrp0/0/gpu/GPU-b/cards": 1,
		"resource/group/gpugrp0/1/gpu/GPU-c/cards": 1,
		"resource/group/gpugrp0/1/gpu/GPU-d/cards": 1,
	}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	used := tree.Dense(types.ResourceList{"resource/group/gpugrp0/1/gpu/GPU-d/cards": 1})
	placer := grouptree.NewPlacer(0)
	for _, pairs := range []int{1, 2} {
		requests := types.ResourceList{}
		for pair := range pairs {
			for _, gpu := range []string{"x", "y"} {
				types.AddGroupResource(requests, fmt.Sprintf("gpugrp0/%d/gpu/%s/cards", pair, gpu), 1)
			}
		}
		pod := &types.PodInfo{RunningContainers: map[string]types.ContainerInfo{"main": {DevRequests: requests}}}
		request, err := grouptree.CompileRequest(pod, nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		placement := placer.Place(tree, used, request)
		if !placement.Fits {
			fmt.Println("nodes", grouptree.Explain(tree, used, request, placement))
			continue
		}
		request.Apply(tree, placement, pod)
		fmt.Println("GPU x is", pod.RunningContainers["main"].AllocateFrom["resource/group/gpugrp0/0/gpu/x/cards"])
		fmt.Println("GPU y is", pod.RunningContainers["main"].AllocateFrom["resource/group/gpugrp0/0/gpu/y/cards"])
	}
	// Output:
	// GPU x is resource/group/gpugrp0/0/gpu/GPU-b/cards
	// GPU y is resource/group/gpugrp0/0/gpu/GPU-a/cards
	// nodes have fewer than 4 free gpu (best: 3 free of 4)
}
