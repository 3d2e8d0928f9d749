// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"cmp"
	"sync/atomic"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Holder is a pod that holds devices of a node. It is safe for concurrent use: only what is cached
// of it changes.
type Holder struct {
	// UID is the pod's UID.
	UID string
	// Pod is the pod's allocation.
	Pod *types.PodInfo
	// held are the group resources that the pod holds.
	held types.ResourceList
	// takes is what the pod takes of a node, according to plugins that translate.
	takes atomic.Pointer[taking]
	// named is the holder by the names of the inventory that it was last looked at with.
	named atomic.Pointer[naming]
}

// naming is a holder by the names of an inventory.
type naming struct {
	inventory *Inventory
	holder    *Holder
}

// ByNamesOf returns the holder by the names that the inventory has for what it holds. A device
// keeps its ID and its level, but the groups above it may be numbered otherwise since the node
// found its devices again, as after a restart: under its old name, what the pod holds would count
// as free.
func (h *Holder) ByNamesOf(inventory *Inventory) *Holder {
	if known := h.named.Load(); known != nil && known.inventory == inventory {
		return known.holder
	}
	holder := h.renamed(inventory)
	h.named.Store(&naming{inventory, holder})
	return holder
}

func (h *Holder) renamed(inventory *Inventory) *Holder {
	now := map[types.ResourceName]types.ResourceName{}
	for name := range h.held {
		if current := inventory.currentName(name); current != name {
			now[name] = current
		}
	}
	if len(now) == 0 {
		return h
	}
	held := types.ResourceList{}
	for name, quantity := range h.held {
		grouptree.Take(held, types.ResourceList{cmp.Or(now[name], name): quantity})
	}
	pod := h.Pod.Clone()
	for _, container := range pod.Containers() {
		for request, from := range container.AllocateFrom {
			container.AllocateFrom[request] = cmp.Or(now[from], from)
		}
	}
	return &Holder{UID: h.UID, Pod: pod, held: held}
}

// onInventory returns the holders by the names of the inventory.
func onInventory(inventory *Inventory, holders []*Holder) []*Holder {
	named := make([]*Holder, len(holders))
	for i, holder := range holders {
		named[i] = holder.ByNamesOf(inventory)
	}
	return named
}

// taking is what a pod takes of a node according to one plugin, and a list of the same for others.
type taking struct {
	plugin    *handle
	inventory *Inventory
	used      types.ResourceList
	others    *taking
}

// takenFor returns what the pod takes according to a plugin, if that is known.
func (h *Holder) takenFor(plugin *handle, inventory *Inventory) (used types.ResourceList, known bool) {
	for t := h.takes.Load(); t != nil; t = t.others {
		if t.plugin == plugin && t.inventory == inventory {
			return t.used, true
		}
	}
	return nil, false
}

// setTaken caches what the pod takes of an inventory, in place of what it takes of others.
func (h *Holder) setTaken(plugin *handle, inventory *Inventory, used types.ResourceList) {
	others := h.takes.Load()
	if others != nil && others.inventory != inventory {
		others = nil
	}
	h.takes.Store(&taking{plugin, inventory, used, others}) // of two calls at once, one may be lost
}

// NewHolder returns the holder of an allocation, which must not change any more. containers are
// the pod's, in the order of its spec.
func NewHolder(uid string, allocation *types.PodInfo, containers []grouptree.Container) *Holder {
	return &Holder{UID: uid, Pod: allocation, held: grouptree.Holdings(allocation, containers)}
}

// Holds returns how much the pod holds of a resource that the group scheduler has.
func (h *Holder) Holds(name types.ResourceName) int64 { return h.held[name] }

// AddTo adds what the pod holds to a list.
func (h *Holder) AddTo(list types.ResourceList) { grouptree.Take(list, h.held) }

// Empty reports whether the pod was allocated nothing.
func (h *Holder) Empty() bool {
	for _, info := range h.Pod.Containers() {
		if len(info.DevRequests)+len(info.AllocateFrom) > 0 {
			return false
		}
	}
	return true
}
