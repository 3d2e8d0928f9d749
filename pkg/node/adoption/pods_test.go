// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

func TestAllocationsOfContainersBecomeThoseOfTheirPods(t *testing.T) {
	const (
		nic types.ResourceName = "resource/group/numa/none/vendor.example:nic/0/device"
		gpu types.ResourceName = "resource/group/numa/none/nvidia.com:gpu/0/device"
	)
	known := knownPods{pods: map[string]pods.Pod{"u": {Namespace: "team", Name: "train", Containers: []pods.Container{
		{Name: "setup", Init: true}, {Name: "log", Init: true, Always: true}, {Name: "main"},
	}}}}
	list := []allocated{
		{podUID: "v", container: "main", devices: []types.ResourceName{gpu}},
		{podUID: "u", container: "main", devices: []types.ResourceName{gpu}},
		{podUID: "u", container: "setup", devices: []types.ResourceName{gpu}},
		{podUID: "u", container: "log", devices: []types.ResourceName{nic}},
		{podUID: "u", container: "main", devices: []types.ResourceName{nic}},
	}
	has := func(devices ...types.ResourceName) types.ContainerInfo { return containerOf(devices) }
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
		known.all = all
		want := []candidate{{Allocation: train, listed: true}, {Allocation: unknown, gone: all}}
		got := candidates(list, "node-1", known)
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(candidate{})); diff != "" {
			t.Errorf("all pods are known: %t (-want +got):\n%s", all, diff)
		}
	}
}

// knownPods are the pods of a registry, which may be all.
type knownPods struct {
	pods map[string]pods.Pod
	all  bool
}

// Get implements Pods.
func (k knownPods) Get(uid string) (pods.Pod, bool) {
	pod, known := k.pods[uid]
	return pod, known
}

// Active implements Pods.
func (k knownPods) Active(uid string) bool { return !k.pods[uid].Ended }

// Check implements Pods.
func (k knownPods) Check() error {
	if k.all {
		return nil
	}
	return errUnreadable
}
