// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nrifront

import (
	"sync"

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
