// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"cmp"
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// callDeadline is how long one call into a plugin may take. Filter makes one call per plugin and node.
const callDeadline = time.Second

// contained calls one plugin such that nothing the plugin does stops or ends the host: calls are serialised unless the
// plugin declares that it need not be, a panic is an error, and a call past its deadline is abandoned. It is safe for
// concurrent use.
type contained struct {
	devicescheduler.DeviceScheduler
	clock    clock.WithTicker
	recorder Recorder

	// What the plugin says of itself, asked once.
	name     string
	groups   bool // leaves placement to the group scheduler
	claimed  []types.ResourceName
	kinds    *kinds  // nil for a plugin that may have to do with everything
	chooser  Chooser // nil for all but the chooser
	words    devicescheduler.Words
	observer *observer // nil for a plugin that keeps no counters of its own

	pure       bool
	translator devicescheduler.Translator // nil for a plugin that does more than translate
	revision   atomic.Uint64              // of the translator, as of the last call that told it of a node
	recall     *recall                    // nil for a plugin whose answers may not be remembered
	// allocations are the answers of PodAllocate, nil for a plugin that does more than translate: what that allocates changes
	// the node, which is hardly ever the same again.
	allocations *recall

	// turn holds one token while a call runs; nil for a plugin that is safe for concurrent use.
	turn chan struct{}

	mu      sync.Mutex
	shunned atomic.Bool // what health says of being set aside, for readers without the mutex
	health
}

// contain asks the plugin what it says of itself. A panic while asking is returned as an error.
func contain(named Named, clk clock.WithTicker, recorder Recorder) (c *contained, err error) {
	defer func() {
		if r := recover(); r != nil {
			c, err = nil, fmt.Errorf("ask %q for its name and abilities: panic: %v", named.File, r)
		}
	}()
	c = &contained{DeviceScheduler: named.Plugin, clock: clk, recorder: recorder}
	c.name = strings.ToValidUTF8(cmp.Or(c.GetName(), named.File), "\uFFFD") // labels of metrics take nothing else
	c.groups = c.UsingGroupScheduler()
	if claimer, ok := named.Plugin.(devicescheduler.ResourceClaimer); ok {
		c.claimed = slices.Clone(claimer.ClaimedResources())
	}
	if specialist, ok := named.Plugin.(devicescheduler.Specialist); ok {
		c.kinds = newKinds(specialist.Kinds())
	}
	c.becomeChooser(named.Plugin)
	c.learnHabits(named.Plugin)
	if describer, ok := named.Plugin.(devicescheduler.Describer); ok {
		c.words = describer.Words()
	}
	if counting, ok := named.Plugin.(devicescheduler.PodObserver); ok {
		c.observer = &observer{PodObserver: counting, told: map[string]string{}}
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
	if err := c.begin(); err != nil {
		c.recorder.Called(c.name, method, outcomeOf(err), 0)
		return failed(err)
	}
	began := c.clock.Now()
	deadline := c.clock.NewTimer(callDeadline)
	defer deadline.Stop()

	var late, over bool // guarded by c.mu
	done := make(chan answer[T], 1)
	go func() {
		a := answer[T]{err: failure{Panicked, "it ended the goroutine of the call"}}
		defer func() {
			if r := recover(); r != nil {
				klog.FromContext(ctx).Error(nil, "Device scheduler panicked", "deviceScheduler", c.name, "method", method, "panic", r, "stack", string(debug.Stack()))
				a.err = failure{Panicked, fmt.Sprintf("panic: %v", r)}
			}
			c.mu.Lock()
			over = true
			if late {
				c.late--
			}
			c.mu.Unlock()
			c.end()
			done <- a
		}()
		a.value, a.err = fn()
	}()

	var a answer[T]
	select {
	case a = <-done:
	case <-deadline.C():
		c.mu.Lock()
		late = !over
		if late {
			c.late++
			c.setAside(true)
		}
		c.mu.Unlock()
		if late {
			klog.FromContext(ctx).Error(nil, "Device scheduler does not answer; it is set aside until it does", "deviceScheduler", c.name, "method", method)
			a.err = failure{TimedOut, fmt.Sprintf("no answer within %v", callDeadline)}
		} else {
			a = <-done
		}
	}
	c.recorder.Called(c.name, method, outcomeOf(a.err), c.clock.Since(began))
	c.record(ctx, a.err)
	if a.err != nil {
		return failed(a.err)
	}
	return a.value, nil
}

type answer[T any] struct {
	value T
	err   error
}

// begin waits until the plugin may be called. It waits no longer than calls return: each has a deadline, and one that
// misses it sets the plugin aside.
func (c *contained) begin() error {
	for {
		if err := c.available(); err != nil || c.turn == nil {
			return err
		}
		patience := c.clock.NewTimer(callDeadline)
		select {
		case c.turn <- struct{}{}:
			patience.Stop()
			if err := c.available(); err != nil {
				<-c.turn
				return err
			}
			return nil
		case <-patience.C():
		}
	}
}

// end lets the next call begin.
func (c *contained) end() {
	if c.turn != nil {
		<-c.turn
	}
}
