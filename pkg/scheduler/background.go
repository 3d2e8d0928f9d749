// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"sync"
)

// background owns the goroutines of the plugin.
type background struct {
	ctx  context.Context
	stop context.CancelFunc

	mu      sync.Mutex
	stopped bool
	running sync.WaitGroup
}

func newBackground(ctx context.Context) *background {
	ctx, stop := context.WithCancel(ctx)
	return &background{ctx: ctx, stop: stop}
}

// run runs f, which must return when its context ends. After close it does nothing.
func (b *background) run(f func(context.Context)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.stopped {
		b.running.Go(func() { f(b.ctx) })
	}
}

// close ends all goroutines and waits for them. It may be called again.
func (b *background) close() {
	b.mu.Lock()
	b.stopped = true
	b.mu.Unlock()
	b.stop()
	b.running.Wait()
}
