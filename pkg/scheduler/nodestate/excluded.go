// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"maps"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
)

// Knows reports whether some node lists the device that an exclusion is for, healthy or not. It
// takes microseconds for each node that lists the resource.
func (c *Cache) Knows(excluded request.Exclusion) (known bool) {
	if !c.plain.has(excluded.Resource) {
		return false
	}
	c.nodes.Range(func(_, value any) bool {
		inv := value.(*node).inventory.Load()
		if inv == nil || inv.devices == nil {
			return true
		}
		if _, listed := slices.BinarySearch(inv.plain, excluded.Resource); !listed {
			return true
		}
		known = slices.ContainsFunc(inv.numa, func(numa string) bool {
			return inv.devices.Lists(excluded.Device(numa))
		})
		return !known
	})
	return known
}

// numaOf returns the NUMA nodes of a node's devices of kubelet device plugins, as their names have
// them.
func numaOf(devices *allocation.Inventory) []string {
	found := map[string]bool{}
	for name := range devices.Names() {
		if _, numa, _, ok := kubeletdevice.ParseRequest(name); ok {
			found[numa] = true
		}
	}
	return slices.Collect(maps.Keys(found))
}
