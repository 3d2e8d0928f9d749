// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletplugin

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// resources is an index of the resources that any node publishes devices of. The zero value is
// empty. It is safe for concurrent use; reading takes no lock.
type resources struct {
	mu       sync.Mutex // serialises writers
	byNode   map[string]map[types.ResourceName]bool
	all      atomic.Pointer[map[types.ResourceName]bool]
	revision atomic.Uint64 // grows with each change of all
}

// has reports whether some node publishes devices of the resource.
func (r *resources) has(name types.ResourceName) bool {
	all := r.all.Load()
	return all != nil && (*all)[name]
}

// set records what a node publishes. An empty list removes the node.
func (r *resources) set(node string, published map[types.ResourceName]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if maps.Equal(r.byNode[node], published) {
		return
	}
	if r.byNode == nil {
		r.byNode = map[string]map[types.ResourceName]bool{}
	}
	r.byNode[node] = published
	if len(published) == 0 {
		delete(r.byNode, node)
	}
	all := map[types.ResourceName]bool{}
	for _, of := range r.byNode {
		maps.Copy(all, of)
	}
	if before := r.all.Swap(&all); before == nil || !maps.Equal(*before, all) {
		r.revision.Add(1)
	}
}
