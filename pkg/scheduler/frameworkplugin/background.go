// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

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

func (b *background) init(ctx context.Context) { b.ctx, b.stop = context.WithCancel(ctx) }

// Run runs f in a goroutine of its own; f must return when its context ends. After Close it does
// nothing.
func (b *background) Run(f func(context.Context)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.stopped {
		b.running.Go(func() { f(b.ctx) })
	}
}

// Close ends all goroutines that Run has started, and waits for them. It may be called again.
func (b *background) Close() {
	b.mu.Lock()
	b.stopped = true
	b.mu.Unlock()
	b.stop()
	b.running.Wait()
}
