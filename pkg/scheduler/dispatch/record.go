// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"errors"
	"time"
)

// Outcome is how a call into a plugin ended. Its text is the value of a metric's label: it never changes.
type Outcome string

const (
	// Answered says that the plugin returned without an error. "The pod does not fit" is an answer.
	Answered Outcome = "answered"
	// Errored says that the plugin returned an error, which is an answer too.
	Errored Outcome = "error"
	// Panicked says that the plugin panicked, or ended the goroutine of the call.
	Panicked Outcome = "panic"
	// TimedOut says that the plugin did not return before the deadline of the call.
	TimedOut Outcome = "timeout"
	// SetAside says that the plugin was not called, because it is set aside.
	SetAside Outcome = "set_aside"
)

// Recorder is told what the device schedulers do, to count it. It must be safe for concurrent use and return at once:
// calls wait for it.
type Recorder interface {
	// Called tells how one call of a plugin's method ended, and how long the plugin took, which is 0 for SetAside. The
	// time for which the call waited for its turn is not in it. TakePodResources is one call for all pods of a node.
	Called(plugin, method string, outcome Outcome, took time.Duration)
	// SetAside tells of every plugin at the start that it is not set aside; then that it is, and after that, when it has
	// answered again, that it is not.
	SetAside(plugin string, aside bool)
	// StepLimitHit tells of an answer of the group scheduler that its step limit cut short, also of one that it remembers.
	StepLimitHit()
}

// unrecorded is the recorder of a set that has none.
type unrecorded struct{}

func (unrecorded) Called(string, string, Outcome, time.Duration) {}
func (unrecorded) SetAside(string, bool)                         {}
func (unrecorded) StepLimitHit()                                 {}

// outcomeOf returns the outcome of a call that ended with err.
func outcomeOf(err error) Outcome {
	var failed failure
	switch {
	case err == nil:
		return Answered
	case errors.As(err, &failed):
		return failed.outcome
	default:
		return Errored
	}
}
