// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"sync"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Latest has the node's latest inventory. A manager writes it; all that a transport of the manager
// needs, and needs the inventory itself, reads it here. All methods are safe for concurrent use.
type Latest struct {
	mu        sync.Mutex
	inventory *Inventory
	extended  []types.ResourceName // of inventory
	changed   chan struct{}        // closed and replaced when inventory is
}

// NewLatest returns one for a node that has no devices yet, and whose inventory is not complete.
func NewLatest(nodeName string) *Latest {
	return &Latest{
		inventory: &Inventory{Node: types.NewNodeInfoWithName(nodeName)}, changed: make(chan struct{}),
	}
}

// Inventory returns what the node has now, and a channel that is closed when that is no longer so.
func (l *Latest) Inventory() (now *Inventory, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inventory, l.changed
}

// Grantable returns how much of a resource all pods together may hold, see Inventory.Grantable.
func (l *Latest) Grantable(name types.ResourceName) (quantity int64, known bool) {
	now, _ := l.Inventory()
	return now.Grantable(name)
}

// ExtendedResources returns the names of the extended resources that plugins publish now, and
// whether every plugin has reported them without an error. The caller must not change the names.
func (l *Latest) ExtendedResources() (names []types.ResourceName, complete bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.extended, l.inventory.Complete
}

// set replaces the inventory.
func (l *Latest) set(now *Inventory) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inventory, l.extended = now, now.ExtendedResources()
	close(l.changed)
	l.changed = make(chan struct{})
}
