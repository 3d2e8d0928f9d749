// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"maps"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Uncovered returns the whole devices that a pod requests beyond the limits of the same container,
// in the order of its containers, and of the names of resources.
//
// A count in the annotation is for as many devices. A device path is for whole devices when a
// plugin says which plain resource counts them (devicescheduler.DeviceCounter). As plugins do, it
// takes the larger number of the two. What is for a part of a device is not counted.
func (s *Set) Uncovered(r *request.Request) []request.Uncovered {
	counting := request.Counting{Devices: s.countsDevices, Paths: s.countedAs}
	found := counting.Uncovered("", r.Pod.Requests, nil)
	for _, container := range r.Containers {
		info := r.Content().Container(container.Name)
		found = append(found, counting.Uncovered(container.Name, info.Requests, info.KubeRequests)...)
	}
	return found
}

// Parts returns the plain resources of whose devices a pod requests parts, such as memory of a GPU,
// sorted. No limit and no quota counts them.
func (s *Set) Parts(r *request.Request) []types.ResourceName {
	found := map[types.ResourceName]bool{}
	add := func(requests types.ResourceList) {
		for name, quantity := range requests {
			path, err := resource.ParsePath(resource.WithPrefix(name))
			if err != nil || quantity == 0 {
				continue
			}
			if _, whole := s.countedAs(path.Name()); whole {
				continue
			}
			for counted, plain := range s.counted {
				if counted.level == path.DeviceLevel() {
					found[plain] = true
				}
			}
		}
	}
	add(r.Pod.Requests)
	for _, container := range r.Containers {
		add(r.Content().Container(container.Name).Requests)
	}
	return slices.Sorted(maps.Keys(found))
}

// Counted returns how many whole devices a pod with an allocation holds, by the plain resource that
// counts them. containers are the pod's, in the order of its spec.
func (s *Set) Counted(allocated *types.PodInfo, containers []grouptree.Container) types.ResourceList {
	sums := types.ResourceList{}
	for name, quantity := range grouptree.Holdings(allocated, containers) {
		if plain, ok := s.countedAs(name); ok {
			sums[plain] += quantity
		}
	}
	return sums
}

// countsDevices reports whether a plugin says that a name counts its devices. Names such as
// gpu/gpu-generate-topology look like plain resources too.
func (s *Set) countsDevices(name types.ResourceName) bool {
	if s.claimed[name] {
		return true
	}
	for _, plain := range s.counted {
		if plain == name {
			return true
		}
	}
	return false
}

// countedAs returns the plain resource that counts the whole devices that a device path is for. ok
// is false for a path for a part of a device, and for one that no plugin knows.
func (s *Set) countedAs(full types.ResourceName) (plain types.ResourceName, ok bool) {
	if plain, ok := s.allocatedAs(full); ok {
		return plain, true
	}
	path, err := resource.ParsePath(full)
	if err != nil {
		return "", false
	}
	plain, ok = s.counted[device{path.DeviceLevel(), path.Resource()}]
	return plain, ok
}

// allocatedAs returns the plain resource that counts the devices of an allocator that a device path
// is for. ok is false for devices of other plugins.
func (s *Set) allocatedAs(full types.ResourceName) (plain types.ResourceName, ok bool) {
	for _, plugin := range s.plugins {
		if plugin.allocator != nil {
			if plain, ok := plugin.allocator.CountedAs(full); ok {
				return plain, true
			}
		}
	}
	return "", false
}
