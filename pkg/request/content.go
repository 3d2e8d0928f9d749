// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"maps"
	"slices"
	"sync"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Content is what a pod requests, without the names of the pod and of a node: all that answers
// about the pod depend on. It is immutable and safe for concurrent use.
type Content struct {
	// Pod has no names.
	Pod *types.PodInfo
	// Containers are the pod's containers in the order of its spec.
	Containers []grouptree.Container
	// Counted are the extended resources of which a container requests more than none, sorted, by
	// the container's name. A container that requests none is not in it. What plugins do with the
	// counts does not change it.
	Counted map[string][]types.ResourceName
	// Waited says that the pod has waited for the best devices of all nodes for long enough.
	Waited bool

	key func() Key
}

// NewContent returns the content of a request for a pod with one container, such as a probe.
func NewContent(container types.ContainerInfo) *Content {
	const only = "main"
	pod := types.NewPodInfo()
	pod.RunningContainers[only] = container
	return newContent(*pod, []grouptree.Container{{Name: only}}, false)
}

// newContent returns the content of a request that no plugin has translated yet.
func newContent(pod types.PodInfo, containers []grouptree.Container, waited bool) *Content {
	return makeContent(pod, containers, countedIn(&pod), waited)
}

func makeContent(
	pod types.PodInfo, containers []grouptree.Container, counted map[string][]types.ResourceName, waited bool,
) *Content {
	pod.Name, pod.NodeName = "", ""
	return &Content{
		Pod: &pod, Containers: containers, Counted: counted, Waited: waited,
		key: sync.OnceValue(func() Key { return keyOf(&pod, containers, counted, waited) }),
	}
}

// With returns the content with what plugins have written into the pod's containers. The caller no
// longer changes the pod.
func (c *Content) With(pod types.PodInfo) *Content {
	return makeContent(pod, c.Containers, c.Counted, c.Waited)
}

// Key returns the content's key. It is computed on the first call.
func (c *Content) Key() Key { return c.key() }

// Part returns the part of the content that is for devices of a node: without the counts of all
// other extended resources. A count in the annotation that the container's limits have, too, is the
// same count. Part returns the content itself if that is all of it.
func (c *Content) Part(isDevice func(types.ResourceName) bool) *Content {
	all := true
	for _, names := range c.Counted {
		for _, name := range names {
			all = all && isDevice(name)
		}
	}
	if all {
		return c
	}
	pod := *c.Pod
	pod.RunningContainers = withoutCounts(pod.RunningContainers, isDevice)
	pod.InitContainers = withoutCounts(pod.InitContainers, isDevice)
	return newContent(pod, c.Containers, c.Waited)
}

func withoutCounts(
	containers map[string]types.ContainerInfo, isDevice func(types.ResourceName) bool,
) map[string]types.ContainerInfo {
	left := maps.Clone(containers)
	for name, info := range left {
		if slices.ContainsFunc(slices.Collect(maps.Keys(info.Requests)), IsCount) {
			limits := info.KubeRequests
			info.Requests = maps.Clone(info.Requests)
			maps.DeleteFunc(info.Requests, func(requested types.ResourceName, quantity int64) bool {
				return IsCount(requested) && !isDevice(requested) && 0 < quantity && quantity <= limits[requested]
			})
		}
		info.KubeRequests = maps.Clone(info.KubeRequests)
		maps.DeleteFunc(info.KubeRequests, func(requested types.ResourceName, _ int64) bool {
			return resource.IsExtendedResource(requested) && !isDevice(requested)
		})
		left[name] = info
	}
	return left
}

// Empty reports whether no device is requested.
func (c *Content) Empty() bool {
	if len(c.Counted)+len(c.Pod.Requests) > 0 {
		return false
	}
	for _, container := range c.Pod.Containers() {
		if len(container.Requests) > 0 {
			return false
		}
	}
	return true
}

// Container returns the container of that name, whichever list it is in.
func (c *Content) Container(name string) types.ContainerInfo {
	if info, ok := c.Pod.RunningContainers[name]; ok {
		return info
	}
	return c.Pod.InitContainers[name]
}

// countedIn returns what Content.Counted is for a pod.
func countedIn(pod *types.PodInfo) map[string][]types.ResourceName {
	var counted map[string][]types.ResourceName
	for name, info := range pod.Containers() {
		for requested, quantity := range info.KubeRequests {
			if quantity <= 0 || !resource.IsExtendedResource(requested) {
				continue
			}
			if counted == nil {
				counted = map[string][]types.ResourceName{}
			}
			counted[name] = append(counted[name], requested)
		}
		slices.Sort(counted[name])
	}
	return counted
}
