// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import (
	"fmt"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// The placer places a pinned request without inspecting other resources: its steps do not grow with
// the number of the node's devices.
func TestPlacesPinnedRequestsWithoutASearch(t *testing.T) {
	steps := map[int]int{}
	for _, devices := range []int{200, 2000} {
		node := &types.NodeInfo{Allocatable: types.ResourceList{}}
		main := types.ContainerInfo{DevRequests: types.ResourceList{}, AllocateFrom: types.ResourceLocation{}}
		for d := range devices {
			name := types.ResourceName(fmt.Sprintf("resource/group/numa/%d/nic/%04d/device", d%2, d))
			node.Allocatable[name] = 1
			if d%2 == 0 && d < 200 {
				request := types.ResourceName(fmt.Sprintf("resource/group/numa/a/nic/%d/device", d))
				main.DevRequests[request], main.AllocateFrom[request] = 1, name
			}
		}
		tree := mustTree(t, node)
		req := mustRequest(t, &types.PodInfo{RunningContainers: map[string]types.ContainerInfo{"main": main}}, nil)
		got := NewPlacer(0).Place(tree, tree.Dense(nil), req)
		if !got.Fits || got.Exact {
			t.Fatalf("%d devices: %+v", devices, got)
		}
		for i, item := range req.items {
			if device := tree.Name(int(got.Assigned[i])); device != item.pin {
				t.Errorf("%s is served by %s, %s was chosen", item.name, device, item.pin)
			}
		}
		steps[devices] = got.Steps
	}
	if steps[2000]-steps[200] > 3*1800 {
		t.Errorf("steps by devices: %v, want some for each device and no more", steps)
	}
}
