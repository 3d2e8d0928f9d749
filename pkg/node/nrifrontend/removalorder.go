// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nrifrontend

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/kubedevice/kubedevice/pkg/node/nrilist"
)

// maxRemovals is how many sandboxes or containers are removed at a time. There may be thousands of
// them, and the runtime takes some ten milliseconds for each.
const maxRemovals = 8

// forEach runs do for each, for maxRemovals at a time, and returns when all have ended.
func forEach[T any](list []T, do func(one T)) {
	var running sync.WaitGroup
	slots := make(chan struct{}, maxRemovals)
	for _, s := range list {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			do(s)
		})
	}
	running.Wait()
}

// removalOrder returns the sandboxes in the order in which they are removed: each is the largest of
// the namespace whose sandboxes, without those before, take the most.
func removalOrder(list []nrilist.Sandbox) []nrilist.Sandbox {
	type namespace struct {
		sandboxes []nrilist.Sandbox // the largest first
		sum       int
	}
	byName := map[string]*namespace{}
	for _, s := range list {
		n, known := byName[s.GetNamespace()]
		if !known {
			n = &namespace{}
			byName[s.GetNamespace()] = n
		}
		n.sandboxes = append(n.sandboxes, s)
		n.sum += s.Size.Bytes
	}
	namespaces := slices.Collect(maps.Values(byName))
	for _, n := range namespaces {
		slices.SortFunc(n.sandboxes, func(a, b nrilist.Sandbox) int { return b.Size.Bytes - a.Size.Bytes })
	}
	order := make([]nrilist.Sandbox, 0, len(list))
	for range list {
		largest := slices.MaxFunc(namespaces, func(a, b *namespace) int {
			return cmp.Or(a.sum-b.sum, len(a.sandboxes)-len(b.sandboxes))
		})
		s := largest.sandboxes[0]
		order = append(order, s)
		largest.sandboxes = largest.sandboxes[1:]
		largest.sum -= s.Size.Bytes
	}
	return order
}
