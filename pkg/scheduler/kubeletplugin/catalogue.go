// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletplugin

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// catalogue knows which resources are hosted on any node. The zero value is empty. It is safe for concurrent use; reading
// takes no lock.
type catalogue struct {
	mu       sync.Mutex // serialises writers
	byNode   map[string]map[types.ResourceName]bool
	hosted   atomic.Pointer[map[types.ResourceName]bool]
	revision atomic.Uint64 // grows with each change of hosted
}

// has reports whether some node hosts the resource.
func (c *catalogue) has(name types.ResourceName) bool {
	hosted := c.hosted.Load()
	return hosted != nil && (*hosted)[name]
}

// set records what a node hosts, in place of what it hosted before. An empty list forgets the node.
func (c *catalogue) set(node string, resources map[types.ResourceName]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if maps.Equal(c.byNode[node], resources) {
		return
	}
	if c.byNode == nil {
		c.byNode = map[string]map[types.ResourceName]bool{}
	}
	c.byNode[node] = resources
	if len(resources) == 0 {
		delete(c.byNode, node)
	}
	hosted := map[types.ResourceName]bool{}
	for _, of := range c.byNode {
		maps.Copy(hosted, of)
	}
	if before := c.hosted.Swap(&hosted); before == nil || !maps.Equal(*before, hosted) {
		c.revision.Add(1)
	}
}
