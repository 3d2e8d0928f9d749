// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nrifront

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/kubedevice/kubedevice/pkg/node/nrilist"
)

// removals is how many sandboxes are removed at a time. There may be thousands of them, and the
// runtime takes some ten milliseconds for each.
const removals = 8

// forEach runs do for each sandbox, for so many at a time as removals says, and returns when all
// have ended.
func forEach(sandboxes []nrilist.Sandbox, do func(s nrilist.Sandbox)) {
	var running sync.WaitGroup
	slots := make(chan struct{}, removals)
	for _, s := range sandboxes {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			do(s)
		})
	}
	running.Wait()
}

// endEmpty ends sandboxes without a container that runs, created since then: as few as are
// necessary for the list to be sent, the largest first. Those that could not be ended stay in the
// list.
func (f *Front) endEmpty(ctx context.Context, list *nrilist.List, since time.Time) {
	occupied := map[string]bool{}
	for _, c := range list.Containers {
		occupied[c.Sandbox] = true
	}
	var empty, others []nrilist.Sandbox
	for _, s := range list.Sandboxes {
		if occupied[s.GetId()] || s.Created.Before(since) {
			others = append(others, s)
		} else {
			empty = append(empty, s)
		}
	}
	slices.SortStableFunc(empty, func(a, b nrilist.Sandbox) int { return b.Size - a.Size })
	// A check of thousands of sandboxes takes some milliseconds: one for each of them is too many.
	few := sort.Search(len(empty), func(ended int) bool {
		left := nrilist.List{Sandboxes: slices.Concat(others, empty[ended:]), Containers: list.Containers}
		return left.Sizes().Check() == nil
	})
	list.Sandboxes = slices.Concat(others, empty[few:])
	var mu sync.Mutex
	forEach(empty[:few], func(s nrilist.Sandbox) {
		reason := fmt.Sprintf("the pod's sandbox is removed: "+unsendable, s.Size)
		ended := f.endOne(ctx, s.PodSandbox, "", reason, func() error { return f.options.Ender.EndPod(ctx, s.GetId()) })
		if !ended {
			mu.Lock()
			defer mu.Unlock()
			list.Sandboxes = append(list.Sandboxes, s)
		}
	})
}
