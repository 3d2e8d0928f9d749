// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/plugincall"
)

const (
	// CallTimeout is how long one call into a plugin may take. Filter makes one call per plugin and
	// node.
	CallTimeout = time.Second

	// maxOverdue is how many calls of a plugin that is safe for concurrent use may hang before it
	// is not called any more: each keeps a goroutine. Filter makes 16 calls at a time.
	maxOverdue = 256
)

// Options say how a plugin is called.
type Options struct {
	// Name is the plugin's name, for errors, logs and metrics.
	Name string
	// Concurrent says that the plugin is safe for concurrent use. Otherwise one call is made at a
	// time.
	Concurrent bool
	// BoundsItself says that calls have no time limit: the plugin is built in, and counts its
	// steps. Probes have one.
	BoundsItself bool
	// Clock measures time limits, back-offs and quarantines.
	Clock clock.WithTicker
	// Recorder counts what the plugin does.
	Recorder Recorder
}

// Plugin is one loaded plugin. It is safe for concurrent use.
type Plugin struct {
	Options
	caller *plugincall.Caller

	state  atomic.Uint32 // a State, as health had it when it last changed
	probes sync.Mutex    // held while probes are made; taken before mu

	mu      sync.Mutex
	health  health
	overdue int // calls that have not returned, as the recorder knows it
}

// New returns a plugin that serves.
func New(options Options) *Plugin {
	p := &Plugin{Options: options, health: health{backOffs: backOffs{}}}
	p.caller = plugincall.New(plugincall.Policy{
		Kind: "device scheduler", Clock: options.Clock, MaxOverdue: maxOverdue,
		Observe: func(plugin, method string, took time.Duration, err error) {
			options.Recorder.Called(plugin, method, plugincall.OutcomeOf(err), took)
		},
	}, options.Name, options.Concurrent)
	options.Recorder.Quarantined(options.Name, false)
	options.Recorder.Overdue(options.Name, 0)
	return p
}

// State returns the plugin's state.
func (p *Plugin) State() State { return State(p.state.Load()) }

// Forget says that a node's inventory changes: no probe is made for the node as it was.
func (p *Plugin) Forget(node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.health.forget(node)
}

// KeptFrom reports whether a subject is in back-off: a call about it would not be made.
func (p *Plugin) KeptFrom(subject Subject) bool {
	if p.State() == Serving {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.health.backOff(&Call{Subject: subject}, p.Clock.Now()) != nil
}

// served notes that a call was answered.
func (p *Plugin) served(call *Call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.health.served(call) {
		p.publish()
	}
}

// returned notes that a call has returned after its limit.
func (p *Plugin) returned(call *Call, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.health.returned(call, took, p.Clock.Now())
	p.publish()
}

// publish makes a change of health known to those who do not hold mu, and to the recorder. mu is
// held.
func (p *Plugin) publish() {
	p.health.blocked = p.caller.Blocked() != nil
	before, now := p.State(), p.health.state()
	p.state.Store(uint32(now))
	if before.Calls() != now.Calls() {
		p.Recorder.Quarantined(p.Name, !now.Calls())
	}
	if overdue := p.caller.Overdue(); overdue != p.overdue {
		p.overdue = overdue
		p.Recorder.Overdue(p.Name, overdue)
	}
}

// refuse returns why there is no answer. The text is the same on all nodes: events group nodes by
// it.
func (p *Plugin) refuse(outcome Outcome, text string, until time.Time) error {
	text = fmt.Sprintf("device scheduler %q: %s", p.Name, text)
	return &refusal{&plugincall.Failure{Outcome: outcome, Text: text}, until.Sub(p.Clock.Now())}
}
