// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

const (
	// callDeadline is how long one call into a plugin may take. Filter makes one call per plugin and node.
	callDeadline = time.Second

	// failuresAllowed is the number of failed calls in a row after which a plugin is set aside.
	failuresAllowed = 3

	// firstPause and lastPause bound the time for which a plugin is set aside; it doubles with each failure in between.
	firstPause = time.Second
	lastPause  = time.Minute
)

// contained calls one plugin such that nothing the plugin does stops or ends the host: calls are serialised unless the
// plugin declares that it need not be, a panic is an error, a call past its deadline is abandoned, and a plugin that
// keeps failing is set aside for a while. It is safe for concurrent use.
type contained struct {
	devicescheduler.DeviceScheduler
	clock clock.WithTicker

	// What the plugin says of itself, asked once.
	name    string
	groups  bool // leaves placement to the group scheduler
	claimed []types.ResourceName

	// turn holds one token while a call runs; nil for a plugin that is safe for concurrent use.
	turn chan struct{}

	mu       sync.Mutex
	late     int           // abandoned calls that have not returned yet
	failures int           // failed calls in a row
	pause    time.Duration // length of the last pause
	asideTo  time.Time     // end of the pause
	lastErr  error         // why the plugin was set aside
}

// contain asks the plugin what it says of itself. A panic while asking is returned as an error.
func contain(named Named, clk clock.WithTicker) (c *contained, err error) {
	defer func() {
		if r := recover(); r != nil {
			c, err = nil, fmt.Errorf("ask %q for its name and abilities: panic: %v", named.File, r)
		}
	}()
	c = &contained{DeviceScheduler: named.Plugin, clock: clk}
	c.name = cmp.Or(c.GetName(), named.File)
	c.groups = c.UsingGroupScheduler()
	if claimer, ok := named.Plugin.(devicescheduler.ResourceClaimer); ok {
		c.claimed = claimer.ClaimedResources()
	}
	if safe, ok := named.Plugin.(devicescheduler.ConcurrentSafe); !ok || !safe.ConcurrentSafe() {
		c.turn = make(chan struct{}, 1)
	}
	return c, nil
}

// call runs fn, which makes one call of the named method, and returns what fn returns. When the deadline passes first, fn
// goes on by itself and what it returns is dropped: fn may touch nothing but its own copies. ctx carries the logger; its
// end is not looked at, because upstream takes an error from a Filter that it has cancelled for a real one.
func call[T any](ctx context.Context, c *contained, method string, fn func() (T, error)) (T, error) {
	var none T
	failed := func(cause error) (T, error) {
		return none, fmt.Errorf("device scheduler %q: %s: %w", c.name, method, cause)
	}
	if err := c.available(); err != nil {
		return failed(err)
	}
	timer := c.clock.NewTimer(callDeadline)
	defer timer.Stop()

	if c.turn != nil {
		select {
		case c.turn <- struct{}{}:
		case <-timer.C():
			return failed(fmt.Errorf("another call into it has been running for %v", callDeadline))
		}
	}

	done := make(chan answer[T], 1)
	go func() {
		var a answer[T]
		defer func() {
			if r := recover(); r != nil {
				klog.FromContext(ctx).Error(nil, "Device scheduler panicked", "deviceScheduler", c.name, "method", method, "panic", r, "stack", string(debug.Stack()))
				a.err = failure(fmt.Sprintf("panic: %v", r))
			}
			if c.turn != nil {
				<-c.turn
			}
			done <- a
		}()
		a.value, a.err = fn()
	}()

	select {
	case a := <-done:
		c.record(ctx, a.err)
		if a.err != nil {
			return failed(a.err)
		}
		return a.value, nil
	case <-timer.C():
		err := failure(fmt.Sprintf("no answer within %v", callDeadline))
		c.abandon(func() { <-done })
		c.record(ctx, err)
		return failed(err)
	}
}

type answer[T any] struct {
	value T
	err   error
}

// failure is an error of the plugin itself, as opposed to an error that it gave as its answer.
type failure string

func (f failure) Error() string { return string(f) }

// available reports why the plugin may not be called now.
func (c *contained) available() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.late > 0 {
		return errors.New("set aside: an earlier call has not returned")
	}
	if c.clock.Now().Before(c.asideTo) {
		return fmt.Errorf("set aside until %s after %d failures in a row: %w", c.asideTo.Format(time.TimeOnly), c.failures, c.lastErr)
	}
	return nil
}

// abandon keeps the plugin set aside until the late call returns.
func (c *contained) abandon(wait func()) {
	c.mu.Lock()
	c.late++
	c.mu.Unlock()
	go func() {
		wait()
		c.mu.Lock()
		c.late--
		c.mu.Unlock()
	}()
}

// record counts failures of the plugin itself; an error that the plugin returned is an answer like any other.
func (c *contained) record(ctx context.Context, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !errors.As(err, new(failure)) {
		c.failures, c.pause = 0, 0
		return
	}
	c.failures++
	c.lastErr = err
	if c.failures < failuresAllowed {
		return
	}
	c.pause = min(max(2*c.pause, firstPause), lastPause)
	c.asideTo = c.clock.Now().Add(c.pause)
	klog.FromContext(ctx).Error(err, "Device scheduler is set aside: its devices cannot be scheduled", "deviceScheduler", c.name, "failures", c.failures, "pause", c.pause)
}
