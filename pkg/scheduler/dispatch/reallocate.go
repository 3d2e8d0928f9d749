// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"iter"
	"maps"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Allocatable yields what is allocatable of each resource, by the names that the plugins left.
func (inv *Inventory) Allocatable() iter.Seq2[types.ResourceName, int64] {
	return maps.All(inv.info.Allocatable)
}

// Quantity returns what is allocatable of one resource, 0 for one that the node does not have.
func (inv *Inventory) Quantity(name types.ResourceName) int64 { return inv.info.Allocatable[name] }

// WithAllocatable returns an inventory in which other quantities of some resources are allocatable,
// which it lists. No plugin is reported a node: for them, the node stays as it was reported.
//
// For a node that is undemanding, requests are those of pods that have waited for the best devices
// of all nodes for long enough: what is best was found without the devices that only this inventory
// has.
func (s *Set) WithAllocatable(
	ctx context.Context, inv *Inventory, quantities types.ResourceList, undemanding bool,
) (*Inventory, error) {
	info, other := *inv.info, *inv
	info.Allocatable = maps.Clone(info.Allocatable)
	maps.Copy(info.Allocatable, quantities)
	tree, err := grouptree.CompileDeviceTree(info.Allocatable, info.Scorer)
	if err != nil {
		return nil, err
	}
	other.info, other.tree, other.counted, other.undemanding = &info, tree, s.counters(tree), undemanding
	other.read = map[*handle]NodeDevices{}
	for plugin := range inv.read {
		read, err := call(ctx, plugin, "Read", info.Name, func() (NodeDevices, error) {
			return plugin.allocator.Read(&info), nil
		})
		switch {
		case err == nil:
			other.read[plugin] = read
		case s.tolerates(err):
			other.missing = other.missing.with(plugin, err)
		default:
			return nil, err
		}
	}
	return &other, nil
}
