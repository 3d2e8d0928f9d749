// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// writeAll writes into every map of a container, or of a pod, as plugins written for the published
// host do: they check none of them for nil.
func writeAll(pod *types.PodInfo, container *types.ContainerInfo) {
	all := []types.ContainerInfo{*container}
	for _, containers := range []map[string]types.ContainerInfo{pod.InitContainers, pod.RunningContainers} {
		for _, container := range containers {
			all = append(all, container)
		}
		containers["another"] = types.ContainerInfo{}
	}
	lists := []types.ResourceList{pod.Requests}
	for _, container := range all {
		lists = append(lists, container.KubeRequests, container.Requests, container.DevRequests)
		container.AllocateFrom["written"], container.Scorer["written"] = "written", 1
	}
	for _, list := range lists {
		list["written"] = 1
	}
}

func TestADevicePluginMayWriteIntoEveryMap(t *testing.T) {
	update := func(node *types.NodeInfo) error {
		for _, list := range []types.ResourceList{node.Capacity, node.Allocatable, node.Used} {
			list[card0] = 1
		}
		node.Scorer[card0] = 1
		node.KubeCap[count], node.KubeAlloc[count] = 1, 1
		return nil
	}
	always := v1.ContainerRestartPolicyAlways
	specs := map[string]v1.PodSpec{
		"one container":        {Containers: []v1.Container{{Name: "app"}}},
		"init containers only": {InitContainers: []v1.Container{{Name: "app"}}},
		"a sidecar": {
			InitContainers: []v1.Container{{Name: "app", RestartPolicy: &always}, {Name: "setup"}},
			Containers:     []v1.Container{{Name: "other"}},
		},
	}
	for name, spec := range specs {
		t.Run(name, func(t *testing.T) {
			pod := &v1.Pod{Spec: spec}
			pod.Name, pod.Spec.NodeName = "p", "n"
			pod.Annotations = map[string]string{deviceinfo.Annotation: `{"podname":"p","nodename":"n"}`}
			allocation, err := deviceinfo.PodAllocation(pod)
			if err != nil {
				t.Fatal(err)
			}
			before := allocation.Clone()
			published := &fake{name: "a", update: update}
			var given int
			published.allocate = func(
				pod *types.PodInfo, container *types.ContainerInfo,
			) ([]device.Mount, []string, map[string]string, error) {
				given = len(pod.InitContainers) + len(pod.RunningContainers)
				writeAll(pod, container)
				return nil, nil, nil, nil
			}
			rich := writingAllocator{&fake{name: "b", update: offers("", card1)}}
			m := run(t, quick, nil, published, rich)
			until(t, m, "complete", complete)
			container := &types.ContainerInfo{AllocateFrom: types.ResourceLocation{"a": card0, "b": card1}}
			held := maps.Clone(container.AllocateFrom)
			claim := Claim{Pod: allocation, Container: container, ContainerName: "app"}
			if _, err := m.Allocate(t.Context(), claim); err != nil {
				t.Fatal(err)
			}
			if want := len(spec.InitContainers) + len(spec.Containers); given != want {
				t.Errorf("the plugin sees %d containers, want the %d of the spec", given, want)
			}
			if diff := cmp.Diff(before, allocation.Clone()) + cmp.Diff(held, container.AllocateFrom); diff != "" {
				t.Errorf("a plugin has changed the allocation (-before +after):\n%s", diff)
			}
		})
	}
}

// writingAllocator is an Allocator that writes into all that it is given.
type writingAllocator struct{ *fake }

func (writingAllocator) AllocateContainer(
	pod *types.PodInfo, container *types.ContainerInfo,
) (*device.Allocation, error) {
	writeAll(pod, container)
	return nil, nil
}
