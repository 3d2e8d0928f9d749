// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package plugincall

import "errors"

// Outcome is how a call ended. Its text is the value of a metric's label and does not change.
type Outcome string

const (
	// Answered says that the plugin returned without an error.
	Answered Outcome = "answered"
	// Errored says that the plugin returned an error, which is an answer, too.
	Errored Outcome = "error"
	// Panicked says that the plugin panicked, or ended the goroutine of the call.
	Panicked Outcome = "panic"
	// TimedOut says that the plugin did not return within the timeout of the call.
	TimedOut Outcome = "timeout"
	// NotReturned says that the call was not made because an earlier call has not returned.
	NotReturned Outcome = "not_returned"
)

// ErrNoAnswer matches every Failure.
var ErrNoAnswer = errors.New("no answer")

// Failure is the reason for a missing answer.
type Failure struct {
	Outcome Outcome
	Text    string
}

// Error returns the reason.
func (f *Failure) Error() string { return f.Text }

// Is makes every failure match ErrNoAnswer.
func (f *Failure) Is(target error) bool { return target == ErrNoAnswer }

// OutcomeOf returns the outcome of a call that ended with err.
func OutcomeOf(err error) Outcome {
	var failure *Failure
	switch {
	case err == nil:
		return Answered
	case errors.As(err, &failure):
		return failure.Outcome
	default:
		return Errored
	}
}
