// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import (
	"maps"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Holdings returns the resources that a pod with an allocation holds on its node: for each device
// resource the maximum in use at any time, by Kubernetes' own formula. Init containers run one
// after another, each along with the sidecars started before it; then all sidecars and regular
// containers run together. Pods do not hold masks: here a mask is a resource whose last segment
// begins with "enum"; [DeviceTree.Take] omits resources that only a node's scorer makes masks.
//
// spec lists the pod's containers in the order of its spec, init containers first, as
// CompileRequest has it.
//
// The pod is untrusted: Holdings ignores a request without a location, a location outside
// resource/group and a negative quantity. It does not check that the node has the resource.
func Holdings(pod *types.PodInfo, spec []Container) types.ResourceList {
	running := map[types.ResourceName]int64{} // regular containers and sidecars
	sidecars := map[types.ResourceName]int64{}
	held := types.ResourceList{}
	named := map[string]bool{}
	for _, member := range spec {
		named[member.Name] = true
		if info, ok := pod.InitContainers[member.Name]; ok {
			holdStep(held, info, sidecars)
		}
		if member.Kind == Sidecar {
			hold(sidecars, pod.RunningContainers[member.Name])
		}
		hold(running, pod.RunningContainers[member.Name])
	}
	for _, name := range slices.Sorted(maps.Keys(pod.RunningContainers)) {
		if !named[name] {
			hold(running, pod.RunningContainers[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(pod.InitContainers)) {
		if !named[name] {
			holdStep(held, pod.InitContainers[name], sidecars)
		}
	}
	raise(held, running)
	return held
}

// holdStep raises held to the quantities in use while an init container runs.
func holdStep(held types.ResourceList, info types.ContainerInfo, sidecars map[types.ResourceName]int64) {
	step := map[types.ResourceName]int64{}
	hold(step, info)
	for name := range step {
		step[name] = addCapped(step[name], sidecars[name])
	}
	raise(held, step)
}

// hold adds the holdings of one container.
func hold(sums map[types.ResourceName]int64, info types.ContainerInfo) {
	for request, quantity := range info.DevRequests {
		device, ok := info.AllocateFrom[request]
		if ok && quantity > 0 && resource.IsGroupResourceName(device) && !resource.IsEnumResource(device) {
			sums[device] = addCapped(sums[device], quantity)
		}
	}
}

// raise makes each of held at least as large as in use.
func raise(held types.ResourceList, inUse map[types.ResourceName]int64) {
	for name, quantity := range inUse {
		held[name] = max(held[name], quantity)
	}
}

// Take adds a pod's holdings to a node's used resources. Sums stop at the largest int64, so that an
// overflow does not make a resource seem free.
func Take(used, held types.ResourceList) {
	for name, quantity := range held {
		used[name] = addCapped(max(0, used[name]), max(0, quantity))
	}
}
