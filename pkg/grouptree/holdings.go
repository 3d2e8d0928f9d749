// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import (
	"maps"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Holdings returns what a pod that has an allocation holds on its node: for each device resource
// the most that is in use at any time, by Kubernetes' own formula. Init containers run one after
// another, each along with the sidecars started before it; then all sidecars and regular containers
// run together. Masks are not held: here a mask is a resource whose last segment begins with
// "enum"; what only a node's scorer makes one is left out by [DeviceTree.Take].
//
// spec lists the pod's containers in the order of its spec, init containers first, as
// CompileRequest has it.
//
// The pod may come from anywhere: a request without a location, a location outside resource/group
// and a negative quantity are left out, and whether the node has the resource does not matter here.
func Holdings(pod *types.PodInfo, spec []Container) types.ResourceList {
	running := map[types.ResourceName]int64{} // regular containers and sidecars
	sidecars := map[types.ResourceName]int64{}
	held := types.ResourceList{}
	named := map[string]bool{}
	for _, at := range spec {
		named[at.Name] = true
		if info, ok := pod.InitContainers[at.Name]; ok {
			holdStep(held, info, sidecars)
		}
		if at.Kind == Sidecar {
			hold(sidecars, pod.RunningContainers[at.Name])
		}
		hold(running, pod.RunningContainers[at.Name])
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

// holdStep raises held to what is in use while an init container runs.
func holdStep(held types.ResourceList, info types.ContainerInfo, sidecars map[types.ResourceName]int64) {
	step := map[types.ResourceName]int64{}
	hold(step, info)
	for name := range step {
		step[name] = addCapped(step[name], sidecars[name])
	}
	raise(held, step)
}

// hold adds what one container holds.
func hold(to map[types.ResourceName]int64, info types.ContainerInfo) {
	for request, quantity := range info.DevRequests {
		from, ok := info.AllocateFrom[request]
		if ok && quantity > 0 && resource.IsGroupResourceName(from) && !resource.IsEnumResource(from) {
			to[from] = addCapped(to[from], quantity)
		}
	}
}

// raise makes each of held at least as large as in use.
func raise(held types.ResourceList, inUse map[types.ResourceName]int64) {
	for name, quantity := range inUse {
		held[name] = max(held[name], quantity)
	}
}

// Take adds what a pod holds to a node's used resources. Sums stay at the largest int64, so that
// what is used beyond all measure can never look free.
func Take(used, held types.ResourceList) {
	for name, quantity := range held {
		used[name] = addCapped(max(0, used[name]), max(0, quantity))
	}
}
