// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"sync"

	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// names counts for each plain resource name the nodes whose inventory lists it. The zero value is
// empty.
type names struct {
	mu     sync.RWMutex
	counts map[sdk.ResourceName]int
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
	for _, name := range after {
		n.counts[name]++
	}
	for _, name := range before {
		if n.counts[name]--; n.counts[name] == 0 {
			delete(n.counts, name)
		}
	}
}
