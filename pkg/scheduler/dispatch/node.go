// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Node is a node's devices and what is used of them at one moment. It is immutable and safe for
// concurrent use.
type Node struct {
	inventory *Inventory
	// info is what plugins get a copy of.
	info *types.NodeInfo
	// used is what the group scheduler gets, by the indices of the inventory's tree.
	used    []int64
	missing missingPlugins

	// The keys of info, and of used with the inventory's shape. They are computed on the first
	// call.
	content, state func() nodeKey
	// summary is what is free, counted on the first call.
	summary func() *grouptree.Summary

	counting sync.Once
	counts   types.ResourceList // see freeCounts
}

// Node returns the node's state: what is used from outside Kubernetes and what the holders hold,
// which must come in the order of their UIDs.
func (s *Set) Node(ctx context.Context, inventory *Inventory, holders []*Holder) (*Node, error) {
	info, missing := *inventory.info, inventory.missing
	holders = onInventory(inventory, holders)
	for _, plugin := range s.plugins {
		concerned := plugin.concerned(inventory, holders)
		if len(concerned) == 0 {
			continue
		}
		used, err := plugin.take(ctx, inventory, &info, concerned)
		switch {
		case err == nil:
			info.Used = used
		case s.tolerates(err):
			missing = missing.with(plugin, err)
		default:
			return nil, err
		}
	}
	if s.groups || s.allocators {
		used := types.ResourceList{}
		maps.Copy(used, info.Used)
		for _, holder := range holders {
			grouptree.Take(used, s.accounted(holder.held))
		}
		info.Used = used
	}
	return newNode(inventory, &info, missing), nil
}

func newNode(inventory *Inventory, info *types.NodeInfo, missing missingPlugins) *Node {
	used := inventory.tree.Dense(info.Used)
	return &Node{
		inventory: inventory,
		info:      info,
		used:      used,
		missing:   missing,
		content:   sync.OnceValue(func() nodeKey { return contentOf(info) }),
		state:     sync.OnceValue(func() nodeKey { return stateOf(inventory.tree, used) }),
		summary:   sync.OnceValue(func() *grouptree.Summary { return inventory.tree.Summarize(used) }),
	}
}

// Estimate is Node without a call of any plugin: what plugins alone account for counts as free, and
// nothing counts as used that is not.
func (s *Set) Estimate(inventory *Inventory, holders []*Holder) *Node {
	info, used := *inventory.info, types.ResourceList{}
	maps.Copy(used, info.Used)
	for _, holder := range onInventory(inventory, holders) {
		grouptree.Take(used, s.accounted(holder.held))
	}
	info.Used = used
	return newNode(inventory, &info, inventory.missing)
}

// concerned returns the holders that hold devices of the plugin's kinds.
func (h *handle) concerned(inventory *Inventory, holders []*Holder) []*Holder {
	switch {
	case h.kinds == nil:
		return holders
	case h.allocator != nil: // the group scheduler accounts for its devices
		return nil
	}
	return slices.DeleteFunc(slices.Clone(holders), func(holder *Holder) bool {
		_, known := holder.takenFor(h, inventory)
		return !known && !h.kinds.concern(holder.Pod)
	})
}

// Resource is one device resource of a node. Quantities are in base units.
type Resource struct {
	// Name is its full path.
	Name types.ResourceName
	// Allocatable is what pods may have of it, and Used what they and others have.
	Allocatable, Used int64
}

// Resources returns the resources that the group scheduler has for the node, in the order of their
// names.
func (n *Node) Resources() []Resource {
	tree := n.inventory.tree
	resources := make([]Resource, tree.Len())
	for i := range resources {
		resources[i] = Resource{Name: tree.Name(i), Allocatable: tree.Allocatable(i), Used: n.used[i]}
	}
	return resources
}

// Capacity returns the paths of all device resources that the node has, those included that nobody
// may have at the moment, in the order of their names.
func (n *Node) Capacity() []resource.Path {
	var paths []resource.Path
	for _, name := range slices.Sorted(maps.Keys(n.inventory.info.Capacity)) {
		if path, err := resource.ParsePath(name); err == nil {
			paths = append(paths, path)
		}
	}
	return paths
}
