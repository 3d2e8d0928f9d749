// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"sync"
	"sync/atomic"

	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// names counts for each plain resource name the nodes whose inventory lists it. The zero value is
// empty.
type names struct {
	mu       sync.RWMutex
	counts   map[sdk.ResourceName]int
	revision atomic.Uint64 // grows when has changes
}

func (n *names) has(name sdk.ResourceName) bool {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.counts[name] > 0
}

// replace replaces the names that one node lists.
func (n *names) replace(before, after []sdk.ResourceName) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.counts == nil {
		n.counts = map[sdk.ResourceName]int{}
	}
	changed := false
	for _, name := range after {
		n.counts[name]++
		changed = changed || n.counts[name] == 1
	}
	for _, name := range before {
		n.counts[name]--
		changed = changed || n.counts[name] == 0
	}
	if changed {
		n.revision.Add(1)
	}
}
