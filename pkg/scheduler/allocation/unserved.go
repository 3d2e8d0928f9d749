// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// unserved says which part of the request no plugin serves, or is translated to a request for
// nothing, or "".
//
// Without it, a pod whose device scheduler is not loaded would be bound without devices.
// isAllocated says of a device request whether it is that of an allocator.
func (t *translation) unserved(isAllocated func(types.ResourceName) bool) string {
	served := false
	for _, container := range t.Containers {
		info := t.Container(container.Name)
		// It would hold nothing, and so fit any device, also one that somebody else has: the node
		// refuses it.
		if empty := forNothing(info.DevRequests); len(empty) > 0 {
			return fmt.Sprintf("container %q asks for 0 of %s", container.Name, slices.Min(empty))
		}
		if len(info.DevRequests)+len(info.AllocateFrom) > 0 {
			served = true
			if left := t.uncounted(container.Name, info, isAllocated); len(left) > 0 {
				return fmt.Sprintf("no device scheduler serves %s of container %q", join(left), container.Name)
			}
			continue
		}
		names := slices.Clone(t.Counted[container.Name])
		for name, quantity := range info.Requests {
			if quantity > 0 && isDevicePath(name) {
				names = append(names, name)
			}
		}
		if len(names) > 0 {
			return fmt.Sprintf("no device scheduler serves %s of container %q", join(names), container.Name)
		}
	}
	if served {
		return ""
	}
	names := slices.Collect(maps.Keys(t.Pod.Requests))
	for _, container := range t.Containers {
		names = slices.AppendSeq(names, maps.Keys(t.Container(container.Name).Requests))
	}
	return fmt.Sprintf("no device scheduler makes a device of the requests %s", join(names))
}

// forNothing returns the requests for a quantity of 0.
func forNothing(requests types.ResourceList) []types.ResourceName {
	var empty []types.ResourceName
	for request, quantity := range requests {
		if quantity == 0 && resource.IsGroupResourceName(request) {
			empty = append(empty, request)
		}
	}
	return empty
}

// uncounted returns what a container counts that nobody serves, if only allocators have translated
// its requests: they remove the counts that they serve. Which counts others serve is unknown.
func (t *translation) uncounted(
	name string, info types.ContainerInfo, isAllocated func(types.ResourceName) bool,
) []types.ResourceName {
	for _, made := range []iter.Seq[types.ResourceName]{maps.Keys(info.DevRequests), maps.Keys(info.AllocateFrom)} {
		for request := range made {
			if !isAllocated(request) {
				return nil
			}
		}
	}
	isServed := func(counted types.ResourceName) bool { return info.KubeRequests[counted] == 0 }
	return slices.DeleteFunc(slices.Clone(t.Counted[name]), isServed)
}

// isDevicePath reports whether a request is for a device, …/<level>/<instance>/<resource>. Other
// requests say how devices are chosen, such as gpu/gpu-generate-topology.
func isDevicePath(name types.ResourceName) bool { return strings.Count(string(name), "/") >= 2 }

// unplaced says which device request of a pod has no device, or "".
func unplaced(pod *types.PodInfo) string {
	var missing []string
	for name, info := range pod.Containers() {
		for request := range info.DevRequests {
			if _, ok := info.AllocateFrom[request]; !ok && resource.IsGroupResourceName(request) {
				missing = append(missing, fmt.Sprintf("no device scheduler places %s of container %q",
					request, name))
			}
		}
	}
	if len(missing) == 0 {
		return ""
	}
	return slices.Min(missing)
}

func join(names []types.ResourceName) string {
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = string(name)
	}
	slices.Sort(texts)
	return strings.Join(slices.Compact(texts), ", ")
}
