// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// placed returns a container that holds quantities of resources of the node, one request for each.
func placed(holds types.ResourceList) types.ContainerInfo {
	info := types.ContainerInfo{DevRequests: types.ResourceList{}, AllocateFrom: types.ResourceLocation{}}
	for name, quantity := range holds {
		request := types.ResourceName("resource/group/request/" + string(name[len(types.DeviceGroupPrefix)+1:]))
		info.DevRequests[request], info.AllocateFrom[request] = quantity, name
	}
	return info
}

func TestPodHoldsWhatKubernetesCounts(t *testing.T) {
	const a, b, enum = "resource/group/gpu/a/memory", "resource/group/gpu/b/memory", "resource/group/gpu/a/enumType"
	hold := func(name types.ResourceName, quantity int64) types.ContainerInfo {
		return placed(types.ResourceList{name: quantity})
	}
	type containers = map[string]types.ContainerInfo
	for name, test := range map[string]struct {
		pod  types.PodInfo
		spec []Container
		want types.ResourceList
	}{
		"containers that run together add up": {
			types.PodInfo{RunningContainers: containers{"x": hold(a, 3), "y": hold(a, 4), "z": hold(b, 1)}},
			[]Container{{"x", Regular}, {"y", Regular}, {"z", Regular}},
			types.ResourceList{a: 7, b: 1},
		},
		"init containers run one after another": {
			types.PodInfo{
				InitContainers:    containers{"i": hold(a, 5), "j": hold(a, 9)},
				RunningContainers: containers{"x": hold(a, 3)},
			},
			[]Container{{"i", Init}, {"j", Init}, {"x", Regular}},
			types.ResourceList{a: 9},
		},
		"an init container runs along with the sidecars before it": {
			types.PodInfo{
				InitContainers:    containers{"i": hold(a, 5)},
				RunningContainers: containers{"s": hold(a, 4), "x": hold(a, 1)},
			},
			[]Container{{"s", Sidecar}, {"i", Init}, {"x", Regular}},
			types.ResourceList{a: 9},
		},
		"but not with those after it": {
			types.PodInfo{
				InitContainers:    containers{"i": hold(a, 5)},
				RunningContainers: containers{"s": hold(a, 4), "x": hold(a, 1)},
			},
			[]Container{{"i", Init}, {"s", Sidecar}, {"x", Regular}},
			types.ResourceList{a: 5},
		},
		"sidecars run along with the containers": {
			types.PodInfo{RunningContainers: containers{"s": hold(a, 4), "x": hold(a, 2)}},
			[]Container{{"s", Sidecar}, {"x", Regular}},
			types.ResourceList{a: 6},
		},
		"without a spec all running containers count as regular ones": {
			types.PodInfo{
				InitContainers:    containers{"i": hold(a, 5)},
				RunningContainers: containers{"s": hold(a, 4), "x": hold(a, 2)},
			},
			nil,
			types.ResourceList{a: 6},
		},
		"pods do not hold masks": {
			types.PodInfo{RunningContainers: containers{"x": placed(types.ResourceList{a: 1, enum: 4})}},
			nil,
			types.ResourceList{a: 1},
		},
		"sums stop at the largest int64": {
			types.PodInfo{
				InitContainers:    containers{"i": hold(a, math.MaxInt64)},
				RunningContainers: containers{"s": hold(a, math.MaxInt64), "x": hold(a, 2)},
			},
			[]Container{{"s", Sidecar}, {"i", Init}, {"x", Regular}},
			types.ResourceList{a: math.MaxInt64},
		},
		"entries that no scheduler writes are ignored": {
			types.PodInfo{RunningContainers: containers{"x": {
				DevRequests: types.ResourceList{
					"resource/group/gpu/u/cards": 1, "resource/group/gpu/v/cards": -1, "other": 1,
				},
				AllocateFrom: types.ResourceLocation{
					"resource/group/gpu/v/cards": a, "other": "other", "resource/group/gpu/w/cards": a,
				},
			}}},
			[]Container{{"gone", Regular}, {"x", Regular}},
			types.ResourceList{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, Holdings(&test.pod, test.spec)); diff != "" {
				t.Errorf("held (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAccountingSurvivesAChangedInventory(t *testing.T) {
	tree := mustTree(t, &types.NodeInfo{Allocatable: types.ResourceList{
		"resource/group/gpu/a/memory": 10, "resource/group/gpu/b/memory": 10, "resource/group/gpu/b/enumType": 3,
		"nvidia.com/gpu": 2,
	}})
	used := tree.Dense(types.ResourceList{"resource/group/gpu/a/memory": 4, "resource/group/gpu/b/memory": -1})
	held := types.ResourceList{
		"resource/group/gpu/a/memory":    20,
		"resource/group/gpu/b/enumType":  1,
		"resource/group/gpu/gone/memory": 5,
		"nvidia.com/gpu":                 1,
	}
	tree.Take(used, held)
	if diff := cmp.Diff(types.ResourceList{"resource/group/gpu/a/memory": 24}, tree.List(used)); diff != "" {
		t.Errorf("after taking (-want +got):\n%s", diff)
	}
	tree.Take(used, types.ResourceList{"resource/group/gpu/a/memory": math.MaxInt64})
	if i, _ := tree.Index("resource/group/gpu/a/memory"); used[i] != math.MaxInt64 {
		t.Errorf("used %d, want the largest int64", used[i])
	}
}
