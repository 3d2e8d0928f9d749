// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import "sync"

// catalogue knows the topologies of all nodes. It is safe for concurrent use.
type catalogue struct {
	mu        sync.RWMutex
	nodes     map[string]string   // key of the topology by node
	kinds     map[string]topology // by key
	count     map[string]int      // nodes by key
	best      map[int]topology    // by number of GPUs; made again when a kind comes or goes
	revisions uint64              // how often that was
}

func newCatalogue() *catalogue {
	return &catalogue{
		nodes: map[string]string{},
		kinds: map[string]topology{},
		count: map[string]int{},
		best:  map[int]topology{},
	}
}

// set records a node's topology, in place of the one before.
func (c *catalogue) set(node string, t topology) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := t.key()
	if c.nodes[node] == key {
		return
	}
	c.drop(node)
	c.nodes[node] = key
	if c.count[key]++; c.count[key] == 1 {
		c.kinds[key] = t
		c.invalidate()
	}
}

func (c *catalogue) remove(node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(node)
}

// drop is remove without the lock.
func (c *catalogue) drop(node string) {
	key, ok := c.nodes[node]
	if !ok {
		return
	}
	delete(c.nodes, node)
	if c.count[key]--; c.count[key] == 0 {
		delete(c.count, key)
		delete(c.kinds, key)
		c.invalidate()
	}
}

// invalidate discards what is best, after a kind came or went.
func (c *catalogue) invalidate() {
	clear(c.best)
	c.revisions++
}

// revision grows whenever what is best may have changed.
func (c *catalogue) revision() uint64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.revisions
}

// bestFor returns the best-connected topology that any node has for n GPUs, nil when no node has so
// many. It must not be changed.
func (c *catalogue) bestFor(n int) topology {
	c.mu.RLock()
	best, ok := c.best[n]
	c.mu.RUnlock()
	if ok {
		return best
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, kind := range c.kinds {
		if some, _ := kind.take(n); some != nil && (best == nil || compareConnected(some, best) < 0) {
			best = some
		}
	}
	c.best[n] = best
	return best
}
