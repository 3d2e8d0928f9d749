// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestHeldAreTheDevicesOfAllContainersAndThoseThatTheyAreLeaving(t *testing.T) {
	holds := func(devices ...string) types.ContainerInfo {
		var names []types.ResourceName
		for _, device := range devices {
			names = append(names, types.ResourceName(device+"/cards"), types.ResourceName(device+"/memory"))
		}
		quantities := map[types.ResourceName]int64{}
		for _, name := range names {
			quantities[name] = 1
		}
		return container(quantities)
	}
	allocations := []Allocation{
		{
			PodUID: "u", PodInfo: &types.PodInfo{
				InitContainers:    map[string]types.ContainerInfo{"setup": holds("resource/group/gpu/0")},
				RunningContainers: map[string]types.ContainerInfo{"main": holds("resource/group/gpu/1")},
			},
			Leaving: map[string]types.ContainerInfo{"main": holds("resource/group/gpu/2")},
		},
		{PodUID: "v", PodInfo: &types.PodInfo{
			RunningContainers: map[string]types.ContainerInfo{"main": holds("resource/group/gpu/3/gi/1/ci/0")},
		}},
	}
	want := []string{
		"resource/group/gpu/0", "resource/group/gpu/1", "resource/group/gpu/2", "resource/group/gpu/3/gi/1/ci/0",
	}
	if diff := cmp.Diff(want, devicesHeld(allocations)); diff != "" || isPartial(allocations) {
		t.Errorf("partial %t (-want +got):\n%s", isPartial(allocations), diff)
	}
	allocations[1].Partial = true
	if !isPartial(allocations) {
		t.Error("an allocation that lacks containers counts as complete")
	}
}
