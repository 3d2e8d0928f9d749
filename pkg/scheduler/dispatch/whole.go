// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"maps"
	"math"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Uncovered is what a container requests in its annotation beyond its limits: whole devices that no
// quota counts.
type Uncovered struct {
	// Container is empty for what the pod requests as a whole: no limits are for that.
	Container string
	// Resource is the plain resource that counts the devices.
	Resource types.ResourceName
	// Requested is how many devices the container requests, Limit how many of them its limits name.
	Requested, Limit int64
}

// Uncovered returns the whole devices that a pod requests beyond the limits of the same container,
// in the order of its containers, and of the names of resources.
//
// A count in the annotation is for as many devices. A device path is for whole devices when a
// plugin says which plain resource counts them (devicescheduler.DeviceCounter). As plugins do, it
// takes the larger number of the two. What is for a part of a device is not counted.
func (s *Set) Uncovered(r *Request) []Uncovered {
	found := s.uncovered(nil, "", r.Pod.Requests, nil)
	for _, at := range r.Containers {
		info := container(r.Pod, at.Name)
		found = s.uncovered(found, at.Name, info.Requests, info.KubeRequests)
	}
	return found
}

// uncovered adds what one container requests beyond its limits.
func (s *Set) uncovered(found []Uncovered, name string, requests, limits types.ResourceList) []Uncovered {
	if len(requests) == 0 {
		return found
	}
	paths := types.ResourceList{} // devices that are requested by their paths, by the plain resource
	for request, quantity := range requests {
		full := resource.WithPrefix(request)
		if _, twice := requests[full]; twice && full != request {
			continue // of two forms of one name the full one counts
		}
		if plain, ok := s.countedAs(full); ok && quantity > 0 {
			paths[plain] += min(quantity, math.MaxInt64-paths[plain])
		}
	}
	for request, quantity := range requests {
		if s.countsDevices(request) {
			paths[request] = max(paths[request], quantity)
		}
	}
	for _, plain := range slices.Sorted(maps.Keys(paths)) {
		if paths[plain] > limits[plain] {
			found = append(found, Uncovered{name, plain, paths[plain], limits[plain]})
		}
	}
	return found
}

// device is what a plain resource may count: a resource of devices of one level.
type device struct{ level, resource string }

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
	for _, plugin := range s.plugins {
		if plugin.allocator != nil {
			if plain, ok := plugin.allocator.CountedAs(full); ok {
				return plain, true
			}
		}
	}
	path, err := resource.ParsePath(full)
	if err != nil {
		return "", false
	}
	plain, ok = s.counted[device{path.DeviceLevel(), path.Resource()}]
	return plain, ok
}
