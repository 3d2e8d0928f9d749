// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"iter"
	"maps"
	"math"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Each request of a container has to come back in the device requests that plugins make of it:
//
//   - a path as device requests of the same kind, a resource of devices of one level, in the same
//     quantity or more: plugins add levels, change placeholders, and add devices that are counted.
//     Only a plugin that places its devices by itself may give them other names. What a plugin
//     translates (devicescheduler.Translating) comes back as the other resource, in its unit,
//   - a count by any device request of a plugin that serves the name. How many it is, the plugin
//     knows: gpu/a/cards is one of the GPUs that nvidia.com/gpu counts.
//
// A plugin that declares no kinds of devices may serve any request in any way.

// Reads reports whether a device scheduler may read a request that is no path, with any meaning.
func (s *Set) Reads(name types.ResourceName) bool {
	if s.countsDevices(name) {
		return true
	}
	known := false // as the name of something of a specialist's devices
	for _, plugin := range s.plugins {
		if plugin.kinds != nil && plugin.kinds.mayRead(name) {
			return true
		}
		known = known || plugin.kinds != nil && plugin.kinds.has(name)
	}
	return !known && !s.specialists
}

// kindOf returns the kind of device that a path is for. An allocator's devices are of the kind that
// their plain resource counts. ok is false for a malformed path.
func (s *Set) kindOf(full types.ResourceName) (kind device, ok bool) {
	if plain, ok := s.allocatedAs(full); ok {
		return device{resource: string(plain)}, true
	}
	path, err := resource.ParsePath(full)
	return device{path.DeviceLevel(), path.Resource()}, err == nil
}

// madeByUnknown reports whether a plugin of which no kinds are known has made a device request of a
// container.
func (s *Set) madeByUnknown(info types.ContainerInfo) bool {
	for _, made := range []iter.Seq[types.ResourceName]{maps.Keys(info.DevRequests), maps.Keys(info.AllocateFrom)} {
		for name := range made {
			if !s.isKnown(name) {
				return true
			}
		}
	}
	return false
}

// isKnown reports whether a device request is for devices of a plugin that declares its kinds.
func (s *Set) isKnown(name types.ResourceName) bool {
	for _, plugin := range s.plugins {
		if plugin.kinds != nil && plugin.kinds.has(name) {
			return true
		}
	}
	kind, ok := s.kindOf(name)
	_, counted := s.counted[kind]
	return ok && counted
}

// unservedIn returns the requests of a container, and the extended resources that it counts, which
// do not come back in its device requests.
func (s *Set) unservedIn(info types.ContainerInfo, counted []types.ResourceName) (left []types.ResourceName) {
	for _, name := range counted {
		if info.KubeRequests[name] > 0 && !s.countServed(name, info) { // an allocator removes it
			left = append(left, name)
		}
	}
	if len(info.Requests) == 0 {
		return left
	}
	made := map[device]int64{}
	for name, quantity := range info.DevRequests {
		if kind, ok := s.kindOf(name); ok {
			made[kind] += min(quantity, math.MaxInt64-made[kind])
		}
	}
	forPaths := maps.Clone(made) // a count includes the devices of paths
	for _, name := range request.ForDevices(info.Requests, s.isCount) {
		quantity := info.Requests[name]
		if request.IsPath(name) {
			kind, ok := s.kindOf(resource.WithPrefix(name))
			if to, translated := s.translated[kind]; translated && made[to] > 0 {
				continue
			}
			if forPaths[kind] -= quantity; (!ok || forPaths[kind] < 0) && !s.placedByItself(name, info) {
				left = append(left, name)
			}
			continue
		}
		if made[device{resource: string(name)}] < quantity && !s.countServed(name, info) {
			left = append(left, name)
		}
	}
	return left
}

// placedByItself reports whether a plugin that has the kind of a path, and places its devices
// without the group scheduler, has made a device request of a container.
func (s *Set) placedByItself(path types.ResourceName, info types.ContainerInfo) bool {
	return slices.ContainsFunc(s.plugins, func(plugin *handle) bool {
		return plugin.kinds != nil && !plugin.groups && plugin.kinds.has(path) && hasAny(plugin.kinds, info.DevRequests)
	})
}

// isCount reports whether a request in the annotation counts devices.
func (s *Set) isCount(name types.ResourceName) bool {
	return s.countsDevices(name) || request.IsCount(name) && !s.isOption(name)
}

// isOption reports whether a plugin has an option of that name, or may have one.
func (s *Set) isOption(name types.ResourceName) bool {
	return slices.ContainsFunc(s.plugins, func(plugin *handle) bool {
		return plugin.kinds != nil && !plugin.kinds.plain[name] && plugin.kinds.mayRead(name)
	})
}

// declaresOption reports whether a plugin has said that it has an option of that name.
func (s *Set) declaresOption(name types.ResourceName) bool {
	full := resource.WithPrefix(name)
	return slices.ContainsFunc(s.plugins, func(plugin *handle) bool {
		return plugin.kinds != nil && plugin.kinds.options[full]
	})
}

// countServed reports whether a plugin that serves a plain resource has made a device request of a
// container.
func (s *Set) countServed(plain types.ResourceName, info types.ContainerInfo) bool {
	for name := range info.DevRequests {
		if kind, ok := s.kindOf(name); ok && s.counted[kind] == plain {
			return true
		}
		for _, plugin := range s.plugins {
			if plugin.kinds != nil && plugin.kinds.plain[plain] && plugin.kinds.has(name) {
				return true
			}
		}
	}
	return false
}

// mayRequestDevices reports whether a plugin may make a device request of the content. Options, and
// devices that are excluded, request none.
func (s *Set) mayRequestDevices(content *request.Content) bool {
	mayCount := func(name types.ResourceName) bool {
		return s.isCount(name) || s.Reads(name) && !s.declaresOption(name)
	}
	if len(content.Counted) > 0 || len(request.ForDevices(content.Pod.Requests, mayCount)) > 0 {
		return true
	}
	for _, info := range content.Pod.Containers() {
		if len(request.ForDevices(info.Requests, mayCount)) > 0 {
			return true
		}
	}
	return false
}

// RequestsLike reports whether a pod requests devices of the kind of the one that has a resource,
// or may request some: of the same extended resource for a device of an allocator, and else of the
// plugin that serves both. It is false for a device that no plugin says to serve.
func (s *Set) RequestsLike(r *request.Request, name types.ResourceName) bool {
	if plain, ok := s.allocatedAs(name); ok {
		return s.requestsOf(r.Pod, plain)
	}
	return slices.ContainsFunc(s.plugins, func(plugin *handle) bool {
		return plugin.kinds != nil && plugin.kinds.has(name) && plugin.kinds.mayConcern(r.Pod)
	})
}

// requestsOf reports whether a pod requests devices that a plain resource counts, by a count or by
// requests for certain ones of an allocator.
func (s *Set) requestsOf(pod *types.PodInfo, plain types.ResourceName) bool {
	for _, info := range pod.Containers() {
		if info.KubeRequests[plain] > 0 || info.Requests[plain] > 0 {
			return true
		}
		for name, quantity := range info.Requests {
			if of, ok := s.allocatedAs(resource.WithPrefix(name)); ok && of == plain && quantity > 0 {
				return true
			}
		}
	}
	return false
}
