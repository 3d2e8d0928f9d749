// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/node/devicemanager"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestWhatTheKubeletGaveToContainersBecomesAllocationsOfPods(t *testing.T) {
	const (
		nic types.ResourceName = "resource/group/numa/none/vendor.example:nic/0/device"
		gpu types.ResourceName = "resource/group/numa/none/nvidia.com:gpu/0/device"
	)
	known := map[string]pods.Pod{"u": {Namespace: "team", Name: "train", Containers: []pods.Container{
		{Name: "setup", Init: true}, {Name: "log", Init: true, Always: true}, {Name: "main"},
	}}}
	get := func(uid string) (pods.Pod, bool) {
		pod, listed := known[uid]
		return pod, listed
	}
	given := []devicemanager.Given{
		{PodUID: "v", Container: "main", Devices: []types.ResourceName{gpu}},
		{PodUID: "u", Container: "main", Devices: []types.ResourceName{gpu}},
		{PodUID: "u", Container: "setup", Devices: []types.ResourceName{gpu}},
		{PodUID: "u", Container: "log", Devices: []types.ResourceName{nic}},
		{PodUID: "u", Container: "main", Devices: []types.ResourceName{nic}},
	}
	has := func(devices ...types.ResourceName) types.ContainerInfo { return grants.AdoptedContainer(devices) }
	train := grants.Allocation{
		PodUID: "u", Namespace: "team", Name: "train", InitOrder: []string{"setup", "log"}, Adopted: true,
		PodInfo: &types.PodInfo{
			Name: "train", NodeName: "node-1", Requests: types.ResourceList{},
			InitContainers:    map[string]types.ContainerInfo{"setup": has(gpu)},
			RunningContainers: map[string]types.ContainerInfo{"log": has(nic), "main": has(gpu, nic)},
		},
	}
	unknown := grants.Allocation{PodUID: "v", Adopted: true, PodInfo: &types.PodInfo{
		NodeName: "node-1", Requests: types.ResourceList{}, InitContainers: map[string]types.ContainerInfo{},
		RunningContainers: map[string]types.ContainerInfo{"main": has(gpu)},
	}}
	for _, all := range []bool{true, false} {
		want := []grants.AdoptablePod{{Allocation: train, Listed: true}, {Allocation: unknown, Gone: all}}
		if diff := cmp.Diff(want, adoptablePods(given, "node-1", get, all)); diff != "" {
			t.Errorf("all pods are known: %t (-want +got):\n%s", all, diff)
		}
	}
}
