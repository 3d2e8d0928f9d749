// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"path"
	"slices"
)

// WaitingPods knows the pods of this node. *pods.Registry implements it.
type WaitingPods interface {
	// Check returns an error until all pods of the node are known.
	Check() error
	// Waits reports whether a device pod may be without a grant, which granted reports.
	Waits(granted func(podUID string) bool) bool
}

// Published says whether the API server has the node's inventory. *advertise.Advertiser implements
// it.
type Published interface {
	// Check returns an error while the API server does not have the inventory.
	Check() error
}

// Holdings are the devices that pods of this node hold. Device plugins that make devices out of
// others need to know which are free.
type Holdings struct {
	Checkpoint *Checkpoint
	Pods       WaitingPods
	Published  Published
}

// Held returns the devices, each by what the names of its resources have in common, sorted, and
// whether there are no others. The list is complete when all grants and pods are known, and no pod
// is on its way: its devices are chosen and not granted yet. While the API server does not have the
// inventory, pods may be on their way to devices that are offered no more.
func (h Holdings) Held() (devices []string, complete bool) {
	// Before the grants are read: so none is missed that a pod gets in between.
	settled := h.Published.Check() == nil && h.Pods.Check() == nil && !h.Pods.Waits(h.Checkpoint.Has)
	allocations, complete, _ := h.Checkpoint.Follow()
	return devicesHeld(allocations), complete && settled && !isPartial(allocations)
}

// devicesHeld returns the devices of the allocations, each by what the names of its resources have
// in common.
func devicesHeld(allocations []Allocation) (devices []string) {
	for i := range allocations {
		for name := range allocations[i].Holds() {
			devices = append(devices, path.Dir(string(name)))
		}
	}
	slices.Sort(devices)
	return slices.Compact(devices)
}

// isPartial reports whether of a pod only those containers are known that were created before.
func isPartial(allocations []Allocation) bool {
	return slices.ContainsFunc(allocations, func(a Allocation) bool { return a.Partial })
}
