// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletplugin

import (
	"slices"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// available returns the devices of a resource that a container can get. Those that other containers
// of the pod hold at other times come first, as they cost the pod nothing; shared is their number.
// comparePositions orders the others.
func (a *podAllocation) available(
	set *numaSet, resource types.ResourceName, c *container,
) (devices []*device, shared int) {
	k := set.kindOf(resource)
	a.countInspection(k)
	a.inspections += len(k.devices)
	unheld := make([]*device, 0, k.free)
	for _, d := range k.devices {
		switch {
		case !d.availableTo(c):
		case len(d.holders) > 0:
			d.position, d.taken = 0, 0 // it costs the pod no further share
			devices = append(devices, d)
		default:
			unheld = append(unheld, d)
		}
	}
	if k.shares {
		a.spread(k, unheld)
	}
	return append(devices, unheld...), len(devices)
}

// spread sets the positions of a kind's devices that the pod does not hold, which are in the order
// of their names, and sorts them by comparePositions.
func (a *podAllocation) spread(k *kind, unheld []*device) {
	next, taken := map[string]int{}, map[string]int{}
	for _, d := range k.held {
		next[d.whole]++
	}
	for _, d := range k.devices {
		if !d.free {
			taken[d.whole]++
		}
	}
	a.inspections += len(k.held) + len(k.devices) + len(unheld)
	for _, d := range unheld {
		if d.whole != "" {
			d.position, d.taken = next[d.whole], taken[d.whole]
			next[d.whole]++
		}
	}
	slices.SortStableFunc(unheld, comparePositions)
}

// count returns how many devices available returns.
func (a *podAllocation) count(set *numaSet, resource types.ResourceName, c *container) (available, shared int) {
	k := set.kindOf(resource)
	a.countInspection(k)
	for _, d := range k.held {
		if d.availableTo(c) {
			shared++
		}
	}
	return k.free - len(k.held) + shared, shared
}

// first returns the first device that available returns, which returns one.
func (a *podAllocation) first(set *numaSet, resource types.ResourceName, c *container) *device {
	k := set.kindOf(resource)
	if k.shares {
		devices, _ := a.available(set, resource, c)
		return devices[0]
	}
	a.countInspection(k)
	var first *device
	for _, d := range k.held {
		if d.availableTo(c) && (first == nil || d.name < first.name) {
			first = d
		}
	}
	for i := 0; first == nil; i++ {
		a.inspections++
		if d := k.devices[i]; d.free && len(d.holders) == 0 {
			first = d
		}
	}
	return first
}

// countInspection adds the cost of inspecting all devices of a kind that the pod holds.
func (a *podAllocation) countInspection(k *kind) {
	a.inspections++
	for _, d := range k.held {
		a.inspections += 1 + len(d.holders)
	}
}
