// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"path"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/node/grants"
)

// held returns the devices that pods of this node hold, for plugins that make devices out of those
// that nobody does. It is complete when all grants and pods are known, and no pod is on its way:
// its devices are chosen and not granted yet. While the API server does not have the inventory,
// pods may be on their way to devices that are offered no more.
func (n *node) held() (devices []string, complete bool) {
	// Before the grants are read: so none is missed that a pod gets in between.
	settled := n.advertiser.Check() == nil && n.registry.Check() == nil && !n.registry.Waits(n.record.Has)
	allocations, complete, _ := n.record.Follow()
	return heldBy(allocations), complete && settled && !partial(allocations)
}

// heldBy returns the devices of the allocations, each by what the names of its resources have in
// common.
func heldBy(allocations []grants.Allocation) (devices []string) {
	for i := range allocations {
		for name := range allocations[i].Holds() {
			devices = append(devices, path.Dir(string(name)))
		}
	}
	slices.Sort(devices)
	return slices.Compact(devices)
}

// partial reports whether of a pod only those containers are known that were created before.
func partial(allocations []grants.Allocation) bool {
	return slices.ContainsFunc(allocations, func(a grants.Allocation) bool { return a.Partial })
}
