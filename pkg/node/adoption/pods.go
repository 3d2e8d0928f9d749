// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"maps"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Pods knows the pods of this node. *pods.Registry implements it.
type Pods interface {
	// Get returns what is known of the pod, without waiting. It may be gone.
	Get(uid string) (pod pods.Pod, known bool)
	// Active reports whether the API server has the pod and it has not ended.
	Active(uid string) bool
	// Check returns an error until all pods of the node are known.
	Check() error
}

// candidate is a pod that the kubelet allocated devices to.
type candidate struct {
	// The allocation has the devices. Of a pod that is not listed it has the UID and PodInfo alone.
	grants.Allocation
	listed bool // the API server has the pod, or had it until lately
	gone   bool // the API server has listed all pods, and not this one
}

// candidates returns the pods that the kubelet allocated something to, by UID.
func candidates(allocated []allocated, nodeName string, known Pods) []candidate {
	found := map[string]*candidate{}
	all := known.Check() == nil
	for _, a := range allocated {
		spec, listed := known.Get(a.podUID)
		pod := found[a.podUID]
		if pod == nil {
			info := types.NewPodInfo()
			info.Name, info.NodeName = spec.Name, nodeName
			pod = &candidate{listed: listed, gone: all && !listed, Allocation: grants.Allocation{
				PodUID: a.podUID, Namespace: spec.Namespace, Name: spec.Name, InitOrder: spec.InitOrder(),
				Adopted: true, PodInfo: info,
			}}
			found[a.podUID] = pod
		}
		containers := pod.PodInfo.RunningContainers
		for _, container := range spec.Containers {
			if container.Name == a.container && container.Init && !container.Always {
				containers = pod.PodInfo.InitContainers
			}
		}
		devices := a.devices
		for name := range containers[a.container].AllocateFrom {
			devices = append(devices, name) // of another resource
		}
		containers[a.container] = containerOf(devices)
	}
	var list []candidate
	for _, uid := range slices.Sorted(maps.Keys(found)) {
		list = append(list, *found[uid])
	}
	return list
}

// containerOf returns an allocation of a container of these devices, which an adopted pod has.
func containerOf(devices []types.ResourceName) types.ContainerInfo {
	info := types.NewContainerInfo()
	for _, name := range slices.Sorted(slices.Values(devices)) {
		info.DevRequests[name], info.AllocateFrom[name] = 1, name
	}
	return *info
}
