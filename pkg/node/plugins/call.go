// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// Observe is told of each call into a plugin when its caller has the outcome.
type Observe func(plugin, call string, took time.Duration, err error)

// line is the way into one plugin. Unless the plugin is safe for concurrent use, one call is inside at a time, and that one
// counts until it returns, also when its caller has given up on it: nothing can stop it.
type line struct {
	plugin  string
	slots   chan struct{} // a token for each call that may be inside; nil means any number
	observe Observe

	mu     sync.Mutex
	inside string // the serialised call that is inside, "" for none
	since  time.Time
}

func newLine(plugin string, concurrent bool, observe Observe) *line {
	l := &line{plugin: plugin, observe: observe}
	if !concurrent {
		l.slots = make(chan struct{}, 1)
	}
	return l
}

// through makes a call into the plugin behind l and returns its result, within limit or until ctx is done. A panic is an
// error. do may outlive through, so it must own what it uses.
func through[T any](ctx context.Context, l *line, call string, limit time.Duration, do func() (T, error)) (result T, err error) {
	start := time.Now()
	defer func() { l.observe(l.plugin, call, time.Since(start), err) }()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %v", limit))
	defer cancel()
	if err := l.enter(ctx, call); err != nil {
		return result, err
	}
	type outcome struct {
		result T
		err    error
	}
	answered := make(chan outcome, 1)
	go func() {
		defer l.leave()
		result, err := contained(klog.FromContext(ctx), l.plugin, call, do)
		answered <- outcome{result, err}
	}()
	select {
	case o := <-answered:
		if o.err != nil {
			return result, fmt.Errorf("device plugin %q: %s: %w", l.plugin, call, o.err)
		}
		return o.result, nil
	case <-ctx.Done():
		return result, fmt.Errorf("device plugin %q: %s: %w", l.plugin, call, context.Cause(ctx))
	}
}

func (l *line) enter(ctx context.Context, call string) error {
	if l.slots == nil {
		return nil
	}
	select {
	case l.slots <- struct{}{}:
	case <-ctx.Done():
		l.mu.Lock()
		defer l.mu.Unlock()
		return fmt.Errorf("device plugin %q: %s: still busy with %s after %v: %w",
			l.plugin, call, l.inside, time.Since(l.since).Round(time.Millisecond), context.Cause(ctx))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inside, l.since = call, time.Now()
	return nil
}

func (l *line) leave() {
	if l.slots == nil {
		return
	}
	l.mu.Lock()
	l.inside = ""
	l.mu.Unlock()
	<-l.slots
}

// contained turns a panic of do into an error; the stack goes to the log.
func contained[T any](logger klog.Logger, plugin, call string, do func() (T, error)) (result T, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v", cause)
			logger.Error(err, "A device plugin panicked", "plugin", plugin, "call", call, "stack", string(debug.Stack()))
		}
	}()
	return do()
}
