// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletplugin

import (
	"errors"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// exceeds reports whether the pod holds more devices of a resource than Kubernetes counts for it.
func (a *podAllocation) exceeds(resource types.ResourceName) bool {
	held := 0
	for _, set := range a.pool {
		held += len(set.kindOf(resource).held)
	}
	return held > a.counted[resource]
}

// exceedsAny is exceeds for all resources that the pod requests.
func (a *podAllocation) exceedsAny() bool {
	for resource := range a.counted {
		if a.exceeds(resource) {
			return true
		}
	}
	return false
}

// mayGoOn reports whether the search may go on with what has been assigned to a group.
func (a *podAllocation) mayGoOn(g *group) bool {
	if !a.bounded {
		return true
	}
	for resource := range g.open {
		if a.exceeds(resource) {
			return false
		}
	}
	return true
}

// errExceeds ends a bounded search.
var errExceeds = errors.New("cannot serve the pod with as few devices as Kubernetes counts")

// assignWithin replaces the assignments by others with which the pod holds no more than Kubernetes
// counts, if it finds any. It takes at most half of the inspections that are left.
func (a *podAllocation) assignWithin(open []*group) {
	exceeding := make([][]assignment, len(a.containers))
	for i, c := range a.containers {
		exceeding[i] = slices.Clone(c.assigned[c.pinned:])
	}
	a.unassign()
	limit := a.limit
	a.limit = (a.inspections + limit) / 2
	a.bounded = true
	err := errExceeds
	if !a.exceedsAny() { // else the devices that the pod requests by ID are too many
		err = a.assign(open)
	}
	a.bounded, a.limit = false, limit
	if err == nil {
		return
	}
	a.unassign()
	for i, c := range a.containers {
		for _, it := range exceeding[i] {
			c.assign(it.request, it.set, it.device)
		}
	}
}

// unassign reverts all assignments but those of devices that the pod requests by ID.
func (a *podAllocation) unassign() {
	for _, c := range a.containers {
		c.release(c.pinned)
		clear(c.placeholders)
	}
}
