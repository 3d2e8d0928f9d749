// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
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

// Capacity returns the paths of all device resources that the node has, those included that no pod
// may have now, in the order of their names.
func (n *Node) Capacity() []resource.Path {
	var paths []resource.Path
	for _, name := range slices.Sorted(maps.Keys(n.inventory.info.Capacity)) {
		if path, err := resource.ParsePath(name); err == nil {
			paths = append(paths, path)
		}
	}
	return paths
}

// Counts reports whether an extended resource is a device on the node, see Inventory.
func (n *Node) Counts(name types.ResourceName) bool { return n.inventory.Counts(name) }

// freeCounts returns how many devices of allocators are free, by the plain resources that count
// them.
func (n *Node) freeCounts() types.ResourceList {
	n.counting.Do(func() {
		n.counts = types.ResourceList{}
		for i, counted := range n.inventory.counted {
			if counted == "" {
				continue
			}
			n.counts[counted] += 0
			if n.used[i] < n.inventory.tree.Allocatable(i) {
				n.counts[counted]++
			}
		}
	})
	return n.counts
}

// Complete reports whether no plugin is missing from the node's state. One that is not complete
// must not be cached.
func (n *Node) Complete() bool { return len(n.missing) == 0 }
