// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodestate tells what devices a node has and which pods hold them.
//
// Both are derived from the NodeInfo that the scheduler framework hands to a call: the inventory from the Node's
// annotation, the holders from the annotations of the pods that it lists. So restarts, leader changes, missed events,
// preemption and nominated pods need no care of their own. What cannot be derived, the allocations that are reserved but
// not yet seen on a bound pod, is kept here per node, by pod UID.
//
// What was computed last for a node is remembered, under a key that holds the node's UID, the NodeInfo's generation and
// number of pods, an epoch that grows with each reservation made or given back, and the inventory's revision. The
// generation alone is no key: upstream's snapshot restores it when it forgets an assumed pod.
package nodestate

import (
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/pkg/scheduler/dispatch"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Cache has the nodes of one cluster. It is safe for concurrent use, and reading takes no lock that a writer holds while
// it computes.
type Cache struct {
	schedulers *dispatch.Set
	nodes      sync.Map // of *node, by name
	reservedBy sync.Map // of the *node that a pod has a reservation on, by pod UID
	revisions  atomic.Uint64

	plainMu sync.Mutex
	plain   atomic.Pointer[map[sdk.ResourceName]int] // plain names that inventories list, with the number of nodes
}

// New returns an empty cache.
func New(schedulers *dispatch.Set) *Cache {
	c := &Cache{schedulers: schedulers}
	c.plain.Store(&map[sdk.ResourceName]int{})
	return c
}

// node is what is known of one node name.
type node struct {
	// syncing serialises the compilation of inventories, which calls plugins.
	syncing   sync.Mutex
	inventory atomic.Pointer[inventory]
	last      atomic.Pointer[memo]

	mu       sync.Mutex
	epoch    uint64
	reserved map[types.UID]*reservation
}

func (c *Cache) node(name string) *node {
	if n, ok := c.nodes.Load(name); ok {
		return n.(*node)
	}
	n, _ := c.nodes.LoadOrStore(name, &node{reserved: map[types.UID]*reservation{}})
	return n.(*node)
}

// Serves reports whether some node's inventory lists the plain resource name, or a plugin claims it: a pod that requests
// it is a device pod.
func (c *Cache) Serves(name sdk.ResourceName) bool {
	return (*c.plain.Load())[name] > 0 || c.schedulers.Claims(name)
}

// recount replaces the plain names that one node lists.
func (c *Cache) recount(before, after []sdk.ResourceName) {
	if len(before)+len(after) == 0 {
		return
	}
	c.plainMu.Lock()
	defer c.plainMu.Unlock()
	counts := map[sdk.ResourceName]int{}
	for name, count := range *c.plain.Load() {
		counts[name] = count
	}
	for _, name := range before {
		counts[name]--
	}
	for _, name := range after {
		counts[name]++
	}
	c.plain.Store(&counts)
}
