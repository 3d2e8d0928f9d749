// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"slices"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// mayConcern reports whether the plugin may have to do with a pod on the node with this inventory.
// Of what the pod counts, only what is a device there is left.
func (h *handle) mayConcern(inventory *Inventory, t *translation) bool {
	if t.concerns(h.kinds) {
		return true
	}
	return h.allocator != nil && slices.ContainsFunc(t.counts(), func(name types.ResourceName) bool {
		return inventory.allocated[name]
	})
}

// relevantHolders returns the holders that hold devices of the plugin's kinds.
func (h *handle) relevantHolders(inventory *Inventory, holders []*Holder) []*Holder {
	switch {
	case h.kinds == nil:
		return holders
	case h.allocator != nil: // the group scheduler accounts for its devices
		return nil
	}
	return slices.DeleteFunc(slices.Clone(holders), func(holder *Holder) bool {
		_, known := holder.takenFor(h, inventory)
		return !known && !h.kinds.mayConcern(holder.Pod)
	})
}

// missingFor returns the error of a plugin that serves the pod and is missing from the node's
// state, or nil. Of several errors it is that of the first plugin by name, so that all nodes have
// the same reason.
func (n *Node) missingFor(t *translation) error {
	var first *handle
	for plugin := range n.missing {
		if plugin.mayConcern(n.inventory, t) && (first == nil || plugin.Name < first.Name) {
			first = plugin
		}
	}
	return n.missing[first]
}
