// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletdevice_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

const (
	gpu types.ResourceName = "nvidia.com/gpu"
	nic types.ResourceName = "vendor.example/nic"
)

func list(t *testing.T, devices ...kubeletdevice.Device) types.ResourceList {
	t.Helper()
	resources := types.ResourceList{}
	for _, device := range devices {
		name, err := kubeletdevice.Name(device)
		if err != nil {
			t.Fatal(err)
		}
		resources[name] = 1
	}
	return resources
}

func request(t *testing.T, resource types.ResourceName, numa, device string) types.ResourceName {
	t.Helper()
	name, err := kubeletdevice.Request(resource, numa, device)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// place returns the devices that the requests of one container are given, by ID, or nil if they do
// not fit.
func place(t *testing.T, node, used types.ResourceList, requests ...types.ResourceName) []string {
	t.Helper()
	inventory, err := grouptree.CompileDeviceTree(node, nil)
	if err != nil {
		t.Fatal(err)
	}
	wanted := types.ResourceList{}
	for _, name := range requests {
		wanted[name] = 1
	}
	pod := &types.PodInfo{RunningContainers: map[string]types.ContainerInfo{"main": {DevRequests: wanted}}}
	compiled, err := grouptree.CompileRequest(pod, nil)
	if err != nil {
		t.Fatal(err)
	}
	placement := grouptree.NewPlacer(0).Place(inventory, inventory.Dense(used), compiled)
	if !placement.Fits {
		return nil
	}
	compiled.Apply(inventory, placement, pod)
	var ids []string
	for name := range maps.Values(pod.RunningContainers["main"].AllocateFrom) {
		device, ok := kubeletdevice.Parse(name)
		if !ok {
			t.Fatalf("%q is no hosted device", name)
		}
		ids = append(ids, device.ID)
	}
	slices.Sort(ids)
	return ids
}

func TestAGPUAndANICOnOneNUMANodeAreOnePlaceholder(t *testing.T) {
	node := list(t,
		kubeletdevice.Device{Resource: gpu, ID: "g0", NUMA: []int{0}},
		kubeletdevice.Device{Resource: gpu, ID: "g1", NUMA: []int{1}},
		kubeletdevice.Device{Resource: nic, ID: "n1", NUMA: []int{1}},
	)
	wanted := []types.ResourceName{request(t, gpu, "A", "0"), request(t, nic, "A", "0")}

	if diff := cmp.Diff([]string{"g1", "n1"}, place(t, node, nil, wanted...)); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	taken := list(t, kubeletdevice.Device{Resource: gpu, ID: "g1", NUMA: []int{1}})
	if got := place(t, node, taken, wanted...); got != nil {
		t.Errorf("with g1 taken, %v was given, and they are not on one NUMA node", got)
	}
}

func TestACountIsSoManyPlaceholders(t *testing.T) {
	node := list(t,
		kubeletdevice.Device{Resource: gpu, ID: "g0", NUMA: []int{0}},
		kubeletdevice.Device{Resource: gpu, ID: "g1", NUMA: []int{1}},
		kubeletdevice.Device{Resource: gpu, ID: "g2", NUMA: []int{0, 1}},
		kubeletdevice.Device{Resource: gpu, ID: "g3"},
	)
	for count, want := range map[int][]string{4: {"g0", "g1", "g2", "g3"}, 5: nil} {
		var wanted []types.ResourceName
		for i := range count {
			each := string(rune('a' + i))
			wanted = append(wanted, request(t, gpu, each, each))
		}
		if diff := cmp.Diff(want, place(t, node, nil, wanted...)); diff != "" {
			t.Errorf("%d devices wherever they are (-want +got):\n%s", count, diff)
		}
	}
}
