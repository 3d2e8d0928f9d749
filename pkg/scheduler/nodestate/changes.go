// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import "sync"

// changes lists the nodes whose inventory or reservations have changed since they were last taken,
// each once. The zero value is empty. It is safe for concurrent use.
type changes struct {
	mu    sync.Mutex
	nodes []*node
}

// add lists a node. What has changed is there to be read before.
func (c *changes) add(n *node) {
	if n.listed.Swap(true) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes = append(c.nodes, n)
}

// take empties the list. Who reads a node afterwards sees what has changed.
func (c *changes) take() []*node {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := c.nodes
	c.nodes = nil
	for _, n := range taken {
		n.listed.Store(false)
	}
	return taken
}
