// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodestate knows what devices a node has and which pods hold them.
//
// Both are derived from the NodeInfo that the scheduler framework hands to a call: the inventory
// from the Node's annotation, the holders from the annotations of the pods that it lists. So
// restarts, leader changes, missed events, preemption and nominated pods need no code of their own.
// What cannot be derived, the allocations that are reserved but not yet seen on a bound pod, is
// kept here per node, by pod UID.
//
// The last state of each node is cached: see version.
package nodestate

import (
	"sync"
	"sync/atomic"

	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/cache"
	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/seal"
)

// Cache has the nodes of one cluster. It is safe for concurrent use, and reading waits for no
// writer, unless the reader itself is the first to see a node's new inventory.
type Cache struct {
	// Requests has what pods request.
	Requests *request.Reader

	schedulers *allocation.Set
	lister     corelisters.NodeLister
	clock      clock.PassiveClock

	nodes      sync.Map // of *node, by name
	reservedOn nodesOfPods
	revisions  atomic.Uint64
	written    writeLog
	tainted    atomic.Bool // a node has had tainted devices
	choosing   atomic.Bool // a pod has chosen devices
	plain      names

	claims   Claims                        // see FollowClaims; nil for none
	placing  sync.Mutex                    // see Placing
	verifier atomic.Pointer[seal.Verifier] // see Enforce
	seals    *cache.Cache[sealed, error]

	allocations *cache.BySize[allocationKey, holder] // of bound pods, for readers without the node's state

	estimates  *cache.Cache[estimateKey, *allocation.Node]
	requesting *cache.Cache[annotationOf, bool] // of bound pods without an allocation: see writesRequests
}

// New returns an empty cache. lister is the informer's, which feeds the scheduler's snapshots: what
// it has is never older than what a snapshot has.
func New(schedulers *allocation.Set, lister corelisters.NodeLister, clk clock.PassiveClock) *Cache {
	c := &Cache{
		schedulers: schedulers, lister: lister, clock: clk,
		allocations: cache.NewBySize[allocationKey, holder](allocationEntries),
		estimates:   cache.New[estimateKey, *allocation.Node](estimateEntries),
		requesting:  cache.New[annotationOf, bool](requestingEntries),
		seals:       cache.New[sealed, error](sealEntries),
	}
	c.Requests = request.NewReader(c, clk)
	return c
}

// Placing keeps all others from reserving what the caller finds to be free, until it calls done.
// Scheduling cycles come one after another; failover does not wait for them.
func (c *Cache) Placing() (done func()) {
	c.placing.Lock()
	return c.placing.Unlock
}

// CacheStats returns what the caches have done so far, by their names.
func (c *Cache) CacheStats() map[string]cache.Stats {
	stats := c.Requests.CacheStats()
	stats["pod_allocations"] = c.allocations.Stats()
	stats["pod_seals"] = c.seals.Stats()
	stats["node_estimates"] = c.estimates.Stats()
	return stats
}

// node is what is known of one node name. It is dropped from the cache when nothing is known any
// more.
type node struct {
	// Read by anyone at any time.
	inventory atomic.Pointer[inventory]
	reserved  atomic.Pointer[reservations]
	last      atomic.Pointer[state]

	mu      sync.Mutex // serialises writers
	dropped bool       // from the cache
}

// find returns what is known of a node name, or nil.
func (c *Cache) find(name string) *node {
	n, _ := c.nodes.Load(name)
	found, _ := n.(*node)
	return found
}

// write calls change with the node of that name, one writer at a time.
func (c *Cache) write(name string, change func(*node)) {
	for !c.tryWrite(name, change) {
	}
}

// tryWrite reports false when the node left the cache meanwhile.
func (c *Cache) tryWrite(name string, change func(*node)) bool {
	n := c.find(name)
	if n == nil {
		stored, _ := c.nodes.LoadOrStore(name, &node{})
		n = stored.(*node)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.dropped {
		return false
	}
	change(n)
	c.written.add(name)
	if n.inventory.Load() == nil && n.reserved.Load().empty() {
		n.dropped = true
		c.nodes.Delete(name)
	}
	return true
}

// WrittenSince calls seen with the name of each node whose inventory or reservations may have
// changed after the first `from` writes to the cache, and returns how many writes there are now. It
// calls nothing and returns false when the cache no longer knows: then every node may have changed.
func (c *Cache) WrittenSince(from uint64, seen func(name string)) (now uint64, ok bool) {
	return c.written.since(from, seen)
}
