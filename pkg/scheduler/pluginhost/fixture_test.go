// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"crypto/sha256"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kubedevice/kubedevice/pkg/request"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// plain is the request that probes make.
const plain = "plain"

// fixture is a plugin that takes one call at a time and fails as the test says, on a clock that
// stands still.
type fixture struct {
	*testing.T
	*Plugin
	clock *clocktesting.FakeClock

	// fails says how a call fails: "panic", "hang" or "". A request is a call's subject, or plain
	// in probes, or the method of a call that is about a node.
	fails   func(node, request string) string
	hanging chan struct{} // gets a value when a call hangs
	release chan struct{} // a value ends a call that hangs

	mu      sync.Mutex
	states  []State // each that the plugin was in, as the recorder and the test saw it
	blamed  []Blamed
	overdue int
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{
		T: t, clock: clocktesting.NewFakeClock(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)),
		hanging: make(chan struct{}), release: make(chan struct{}),
	}
	f.serves()
	f.Plugin = New(Options{Name: "p", Clock: f.clock, Recorder: f})
	f.note()
	return f
}

// Called notes the plugin's state.
func (f *fixture) Called(string, string, Outcome, time.Duration) { f.note() }

// Blamed notes what a failed call is blamed on.
func (f *fixture) Blamed(_ string, blamed Blamed) {
	f.note()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.blamed = append(f.blamed, blamed)
}

// Quarantined notes the plugin's state, which it must agree with.
func (f *fixture) Quarantined(_ string, quarantined bool) {
	f.note()
	if f.Plugin != nil && f.State().Calls() == quarantined {
		f.Errorf("the recorder gets %v in state %v", quarantined, f.State())
	}
}

// Overdue notes the plugin's state.
func (f *fixture) Overdue(_ string, calls int) {
	f.note()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.overdue = calls
}

// note notes the plugin's state.
func (f *fixture) note() {
	if f.Plugin == nil { // it is being made
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if state := f.State(); len(f.states) == 0 || f.states[len(f.states)-1] != state {
		f.states = append(f.states, state)
	}
}

// seen returns the states that the plugin was in.
func (f *fixture) seen() []State {
	f.note()
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.states)
}

// serves makes the plugin answer every call.
func (f *fixture) serves() { f.fails = func(string, string) string { return "" } }

// panicsFor makes it fail for some requests.
func (f *fixture) panicsFor(requests ...string) { f.failsFor("panic", requests...) }

// hangsFor makes calls for some requests hang.
func (f *fixture) hangsFor(requests ...string) { f.failsFor("hang", requests...) }

func (f *fixture) failsFor(how string, requests ...string) {
	f.fails = func(_, request string) string {
		if slices.Contains(requests, request) {
			return how
		}
		return ""
	}
}

// enter is what the plugin does in a call.
func (f *fixture) enter(node, request string) {
	switch f.fails(node, request) {
	case "panic":
		panic("ouch")
	case "hang":
		f.hanging <- struct{}{}
		<-f.release
	}
}

// probe is a probe of a node.
type probe struct {
	f    *fixture
	node string
}

func (p probe) NodeName() string { return p.node }
func (p probe) Query() error     { p.f.enter(p.node, plain); return nil }

// fit calls the plugin for a request on a node. When the call hangs, its time limit passes.
func (f *fixture) fit(node, of string) error {
	f.Helper()
	return f.do(&Call{Method: "PodFitsDevice", Subject: Subject{
		Node: node, Request: Request{Key: request.Key(sha256.Sum256([]byte(of)))}, Probe: probe{f, node},
	}}, of)
}

// call calls a method that is about a node.
func (f *fixture) call(method, node string) error {
	f.Helper()
	return f.do(&Call{Method: method, Subject: Subject{Node: node}}, method)
}

func (f *fixture) do(call *Call, request string) error {
	f.Helper()
	result := make(chan error, 1)
	go func() {
		_, err := Do(f.Context(), f.Plugin, call, func() (struct{}, error) {
			f.enter(call.Subject.Node, request)
			return struct{}{}, nil
		})
		result <- err
	}()
	for {
		select {
		case err := <-result:
			f.note()
			return err
		case <-f.hanging:
			f.clock.Step(CallTimeout)
		}
	}
}

// returns ends a call that hangs, and waits until the plugin knows.
func (f *fixture) returns() {
	f.Helper()
	f.release <- struct{}{}
	f.waitFor("the call returns", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.overdue == 0 && f.State() != Blocked
	})
	f.note()
}

// waitFor waits until the condition holds.
func (f *fixture) waitFor(what string, condition func() bool) {
	f.Helper()
	for end := time.Now().Add(time.Minute); !condition(); runtime.Gosched() {
		if time.Now().After(end) {
			f.Fatalf("waited in vain: %s", what)
		}
	}
}

// want fails the test when the plugin is in another state.
func (f *fixture) want(state State) {
	f.Helper()
	if got := f.State(); got != state {
		f.Fatalf("the plugin is %v, want %v", got, state)
	}
}
