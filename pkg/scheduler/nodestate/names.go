// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// names counts for each plain resource name the nodes whose inventory lists it. The zero value is
// empty. Reading takes no lock.
type names struct {
	mu     sync.Mutex // serialises writers
	counts atomic.Pointer[map[sdk.ResourceName]int]
}

func (n *names) has(name sdk.ResourceName) bool {
	counts := n.counts.Load()
	return counts != nil && (*counts)[name] > 0
}

// replace replaces the names that one node lists. Both lists are sorted.
func (n *names) replace(before, after []sdk.ResourceName) {
	if slices.Equal(before, after) {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	next := map[sdk.ResourceName]int{}
	if counts := n.counts.Load(); counts != nil {
		next = maps.Clone(*counts)
	}
	for _, name := range after {
		next[name]++
	}
	for _, name := range before {
		if next[name]--; next[name] == 0 {
			delete(next, name)
		}
	}
	n.counts.Store(&next)
}
