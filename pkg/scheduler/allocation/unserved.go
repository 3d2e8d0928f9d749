// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// unserved says which part of the request no plugin serves, or is translated to a request for
// nothing, or "".
//
// Without it, a pod would be bound without devices that it requests, where their device scheduler
// is not loaded or does not read the request.
func (s *Set) unserved(t *translation) string {
	served, unknown := false, false
	for _, container := range t.Containers {
		info := t.Container(container.Name)
		// It would hold nothing, and so fit any device, also one that another user has: the node
		// refuses it.
		if empty := zeroRequests(info.DevRequests); len(empty) > 0 {
			return fmt.Sprintf("container %q requests 0 of %s", container.Name, slices.Min(empty))
		}
		served = served || len(info.DevRequests)+len(info.AllocateFrom) > 0
		if s.madeByUnknown(info) {
			unknown = true
			continue
		}
		if left := s.unservedIn(info, t.Counted[container.Name]); len(left) > 0 {
			return fmt.Sprintf("no device scheduler serves %s of container %q", join(left), container.Name)
		}
	}
	if left := request.ForDevices(t.Pod.Requests, s.isCount); len(left) > 0 && !unknown {
		return fmt.Sprintf("cannot serve %s for a pod as a whole: write it under one of its containers", join(left))
	}
	if served || !s.mayRequestDevices(t.Content) {
		return ""
	}
	names := slices.Collect(maps.Keys(t.Pod.Requests))
	for _, container := range t.Containers {
		names = slices.AppendSeq(names, maps.Keys(t.Container(container.Name).Requests))
	}
	return fmt.Sprintf("no device scheduler makes a device of the requests %s", join(names))
}

// zeroRequests returns the requests for a quantity of 0.
func zeroRequests(requests types.ResourceList) []types.ResourceName {
	var empty []types.ResourceName
	for request, quantity := range requests {
		if quantity == 0 && resource.IsGroupResourceName(request) {
			empty = append(empty, request)
		}
	}
	return empty
}

// describeUnplaced says which device request of a pod has no device, or "".
func describeUnplaced(pod *types.PodInfo) string {
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
