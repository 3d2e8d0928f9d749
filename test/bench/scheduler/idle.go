// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"syscall"
	"time"
)

// A scheduler is idle that has had a CPU for less than idleCPU in idleWindow: it has nothing left
// to learn or to say.
const (
	idleCPU    = 2 * time.Millisecond
	idleWindow = 100 * time.Millisecond
)

// drainTimeout is how long schedulers may take to start, or to become idle.
const drainTimeout = 2 * time.Minute

// begin starts both schedulers and leaves them stopped.
func (d *trial) begin(ctx context.Context) (err error) {
	for i, w := range []variant{d.variant, d.baseline} {
		d.sides[i].variant = w
		if d.sides[i].process, err = d.bench.start(fmt.Sprintf("bench-%d", i), w.ours); err != nil {
			return err
		}
	}
	limited, cancel := context.WithTimeoutCause(ctx, drainTimeout, fmt.Errorf("it was not in %v", drainTimeout))
	defer cancel()
	for _, s := range d.sides {
		if err := s.awaitReady(limited); err != nil {
			return err
		}
	}
	return d.drain(ctx)
}

// drain lets both schedulers go on until they are idle, and stops them.
func (d *trial) drain(ctx context.Context) error {
	if err := d.resume(); err != nil {
		return err
	}
	if err := d.awaitIdle(ctx); err != nil {
		return err
	}
	for _, s := range d.sides {
		if err := s.signal(syscall.SIGSTOP); err != nil {
			return err
		}
	}
	return nil
}

// resume lets both schedulers go on.
func (d *trial) resume() error {
	for _, s := range d.sides {
		if err := s.signal(syscall.SIGCONT); err != nil {
			return err
		}
	}
	return nil
}

// awaitIdle waits until both schedulers are idle at the same time.
func (d *trial) awaitIdle(ctx context.Context) error {
	window := time.NewTicker(idleWindow)
	defer window.Stop()
	limit := time.After(drainTimeout)
	before := d.cpus()
	for {
		select {
		case <-window.C:
		case <-limit:
			return fmt.Errorf("the schedulers of %s and of %s have nothing to do and are not idle after %v",
				d.variant.name,
				d.baseline.name, drainTimeout)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		now := d.cpus()
		if now[0]-before[0] < idleCPU && now[1]-before[1] < idleCPU {
			return nil
		}
		before = now
	}
}

// cpus returns the CPU time of both schedulers.
func (d *trial) cpus() [2]time.Duration {
	return [2]time.Duration{d.sides[0].cpu(), d.sides[1].cpu()}
}
