// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plugincall isolates calls into plugin code: a call has a timeout, a panic is an error,
// and a plugin that is not safe for concurrent use gets one call at a time. Nothing can stop a call
// that does not return. The caller abandons such a call, logs it, and counts it until it returns.
//
// The users of this package decide how to react to a failure: see pkg/scheduler/pluginhost and
// pkg/node/plugins.
package plugincall

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/logkey"
)

// Policy says how one side calls its plugins.
type Policy struct {
	// Kind names the plugins in errors, such as "device plugin".
	Kind string
	// Clock measures timeouts.
	Clock clock.WithTicker
	// TimeoutCoversQueue says that the timeout of a call includes its time in the queue, and that
	// the end of the context ends both. Otherwise the timeout starts when the plugin gets the call:
	// a call waits as long as earlier calls stay within their timeouts, and the end of the context
	// has no effect.
	TimeoutCoversQueue bool
	// MaxOverdue is how many calls into a plugin that is safe for concurrent use may exceed their
	// timeouts before the caller makes no other call; 0 means any number.
	MaxOverdue int
	// Observe receives each call when the caller has the result; took is the time that counts for
	// the timeout. OutcomeOf classifies err. Observe must be safe for concurrent use and return at
	// once.
	Observe func(plugin, method string, took time.Duration, err error)
}

// Caller makes the calls into one plugin. It is safe for concurrent use.
type Caller struct {
	policy Policy
	plugin string
	queue  chan struct{} // holds one token while a call runs; nil for a plugin that is safe for concurrent use

	mu      sync.Mutex
	method  string // of the running call, if calls run one at a time
	since   time.Time
	overdue int
	stuck   chan struct{} // closed while the running call is overdue
}

// New returns the caller of a plugin. concurrent says that the plugin is safe for concurrent use.
func New(policy Policy, plugin string, concurrent bool) *Caller {
	c := &Caller{policy: policy, plugin: plugin, stuck: make(chan struct{})}
	if !concurrent {
		c.queue = make(chan struct{}, 1)
	}
	return c
}

// Overdue returns the number of calls that have exceeded their timeouts and have not returned.
func (c *Caller) Overdue() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.overdue
}

// Blocked returns an error if the plugin cannot be called now because an earlier call has not
// returned, or nil.
func (c *Caller) Blocked() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.queue != nil && c.overdue > 0:
		return c.busy()
	case c.queue == nil && c.policy.MaxOverdue > 0 && c.overdue >= c.policy.MaxOverdue:
		return &Failure{NotReturned, fmt.Sprintf("%d earlier calls have not returned", c.overdue)}
	}
	return nil
}

// busy returns the error that a call still runs. The caller holds the mutex.
func (c *Caller) busy() error {
	return &Failure{NotReturned, fmt.Sprintf("an earlier call of %s has not returned since %s",
		c.method, c.since.Format(time.TimeOnly))}
}

// Call describes one call.
type Call struct {
	// Method is the plugin's method, for errors, logs and metrics.
	Method string
	// Timeout is how long the call may take; 0 for a call that bounds itself by its steps. Such a
	// call runs in the caller's goroutine, which saves two switches of goroutines: 20 µs of CPU.
	Timeout time.Duration
	// Returned, if set, is called when an abandoned call returns after all, before the next waiting
	// call begins. took is the total time that the call ran.
	Returned func(took time.Duration)
}

// Do makes a call by running fn, and returns the results of fn. The error is a *Failure if Do does
// not make the call, or if the call panics, ends its goroutine or exceeds its timeout. fn may
// continue after Do has returned, so it must own the data that it uses. ctx contains the logger;
// see Policy.TimeoutCoversQueue for its end.
func Do[T any](ctx context.Context, c *Caller, call Call, fn func() (T, error)) (result T, err error) {
	policy := &c.policy
	start := policy.Clock.Now()
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s %q: %s: %w", policy.Kind, c.plugin, call.Method, err)
		}
		policy.Observe(c.plugin, call.Method, policy.Clock.Since(start), err)
	}()
	if call.Timeout == 0 {
		if err = c.enter(nil, nil, call.Method); err != nil {
			return result, err
		}
		r := &run[T]{caller: c, call: call, began: start, done: make(chan struct{})}
		r.run(ctx, fn)
		return r.result, r.err
	}
	var ended <-chan struct{}
	var timer clock.Timer
	if policy.TimeoutCoversQueue {
		ended, timer = ctx.Done(), policy.Clock.NewTimer(call.Timeout)
		err = c.enter(timer.C(), ended, call.Method)
	} else {
		err = c.enter(nil, nil, call.Method)
		start = policy.Clock.Now()
		timer = policy.Clock.NewTimer(call.Timeout)
	}
	defer timer.Stop()
	if err != nil {
		return result, err
	}
	r := &run[T]{caller: c, call: call, began: policy.Clock.Now(), done: make(chan struct{})}
	go r.run(ctx, fn)
	select {
	case <-r.done:
		return r.result, r.err
	case <-timer.C():
		err = &Failure{TimedOut, fmt.Sprintf("no answer within %v", call.Timeout)}
	case <-ended:
		err = &Failure{TimedOut, context.Cause(ctx).Error()}
	}
	if r.abandon() {
		klog.FromContext(ctx).Error(err, "A plugin call has not returned in time",
			logkey.Plugin, c.plugin, logkey.Method, call.Method)
		return result, err
	}
	<-r.done
	return r.result, r.err
}

// enter waits in the queue.
func (c *Caller) enter(timeout <-chan time.Time, ended <-chan struct{}, method string) error {
	if err := c.Blocked(); c.queue == nil || err != nil && !c.policy.TimeoutCoversQueue {
		return err
	}
	var stuck chan struct{}
	if !c.policy.TimeoutCoversQueue {
		c.mu.Lock()
		stuck = c.stuck
		c.mu.Unlock()
	}
	select {
	case c.queue <- struct{}{}:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.method, c.since = method, c.policy.Clock.Now()
		return nil
	case <-stuck:
	case <-timeout:
	case <-ended:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.busy()
}

// run is one running call.
type run[T any] struct {
	caller *Caller
	call   Call
	began  time.Time
	done   chan struct{} // closed when there is a result
	result T
	err    error

	returned, abandoned bool // guarded by the caller's mutex
}

func (r *run[T]) run(ctx context.Context, fn func() (T, error)) {
	r.err = &Failure{Panicked, "it ended the goroutine of the call"}
	defer func() {
		if cause := recover(); cause != nil {
			r.err = &Failure{Panicked, fmt.Sprintf("panic: %v", cause)}
			klog.FromContext(ctx).Error(r.err, "A plugin panicked",
				logkey.Plugin, r.caller.plugin, logkey.Method, r.call.Method, logkey.Stack, string(debug.Stack()))
		}
		r.leave()
		close(r.done)
	}()
	r.result, r.err = fn()
}

// leave notes that the call has returned, and admits the next one.
func (r *run[T]) leave() {
	c := r.caller
	c.mu.Lock()
	r.returned = true
	if r.abandoned {
		if c.overdue--; c.overdue == 0 {
			c.stuck = make(chan struct{})
		}
	}
	c.mu.Unlock()
	if r.abandoned && r.call.Returned != nil {
		r.call.Returned(c.policy.Clock.Since(r.began))
	}
	if c.queue != nil {
		<-c.queue
	}
}

// abandon marks the call as abandoned, unless it has returned. It reports whether it did.
func (r *run[T]) abandon() bool {
	c := r.caller
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.returned {
		return false
	}
	r.abandoned = true
	if c.overdue++; c.overdue == 1 {
		close(c.stuck)
	}
	return true
}
