// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"maps"
	"slices"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// deviceNames are the extended resources that are devices on a node. The others, if it has any, are
// counted by its kubelet, and nobody here has to do with them. Most nodes of a cluster have the
// same ones and share them, so a request is compared with them once for all these nodes.
type deviceNames map[types.ResourceName]bool

// maxDeviceNames is how many different deviceNames are shared.
const maxDeviceNames = 1 << 8

// deviceNames returns the extended resources that are devices on a node: those that its inventory
// lists, and those that a plugin claims and the kubelet does not count. An inventory is a node's
// own word, and so it is about this node only.
func (s *Set) deviceNames(node *types.NodeInfo) *deviceNames {
	names := deviceNames{}
	for name := range node.Capacity {
		if resource.IsExtendedResource(name) {
			names[name] = true
		}
	}
	for name := range s.claimed {
		if node.KubeCap[name] <= 0 && node.KubeAlloc[name] <= 0 {
			names[name] = true
		}
	}
	return s.shared(names)
}

// shared returns the names that other nodes have, if they are the same.
func (s *Set) shared(names deviceNames) *deviceNames {
	var key strings.Builder
	for _, name := range slices.Sorted(maps.Keys(names)) {
		key.WriteString(string(name))
		key.WriteByte(' ') // which no extended resource has
	}
	if known, ok := s.names.Get(key.String()); ok {
		return known
	}
	s.names.Add(key.String(), &names)
	return &names
}

// hideKubelets removes from a node what its kubelet counts of extended resources that are not the
// node's devices, so that no plugin takes them for its own.
func hideKubelets(node *types.NodeInfo, devices *deviceNames) {
	isKubelets := func(name types.ResourceName, _ int64) bool {
		return resource.IsExtendedResource(name) && !(*devices)[name]
	}
	maps.DeleteFunc(node.KubeCap, isKubelets)
	maps.DeleteFunc(node.KubeAlloc, isKubelets)
}

// extendedOf returns the extended resources of which containers request more than none, sorted, by
// the container's name. A container that requests none is not in the result.
func extendedOf(lists ...map[string]types.ContainerInfo) map[string][]types.ResourceName {
	var counted map[string][]types.ResourceName
	for _, containers := range lists {
		for name, info := range containers {
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
	}
	return counted
}

// onlyOf returns the part of a request that is for devices of a node which has these: without the
// counts of all other extended resources. It returns the request itself if that is all of it.
func (t *translation) onlyOf(devices *deviceNames) *translation {
	all := true
	for _, names := range t.counted {
		for _, name := range names {
			all = all && (*devices)[name]
		}
	}
	if all {
		return t
	}
	pod := *t.pod
	pod.RunningContainers = countsOnlyOf(pod.RunningContainers, devices)
	pod.InitContainers = countsOnlyOf(pod.InitContainers, devices)
	return newTranslation(pod, t.containers, t.waited)
}

func countsOnlyOf(containers map[string]types.ContainerInfo, devices *deviceNames) map[string]types.ContainerInfo {
	own := maps.Clone(containers)
	for name, info := range own {
		info.KubeRequests = maps.Clone(info.KubeRequests)
		maps.DeleteFunc(info.KubeRequests, func(requested types.ResourceName, _ int64) bool {
			return resource.IsExtendedResource(requested) && !(*devices)[requested]
		})
		own[name] = info
	}
	return own
}

// empty reports whether no device is requested.
func (t *translation) empty() bool {
	if len(t.counted)+len(t.pod.Requests) > 0 {
		return false
	}
	for _, container := range t.pod.Containers() {
		if len(container.Requests) > 0 {
			return false
		}
	}
	return true
}
