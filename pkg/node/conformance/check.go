// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/truncate"
)

// check is one check of a plugin of type T.
type check[T any] struct {
	name  string
	about string   // what holds for a plugin that passes, as a sentence
	fix   string   // what the author of a plugin that fails is to do
	needs []string // checks that must have passed

	provokes bool // whether it provokes panics, so that fix is about them, too

	breaks bool // whether it breaks a device and repairs it, if there are commands for that

	// run returns nil, an error that says what is wrong, or one of notApplicable.
	run func(T) error
	// observe is set in place of run: what it returns must be the same in another process.
	observe func(T) (lines []string, err error)
}

// find returns the check of that name.
func find[T any](checks []check[T], name string) (check[T], bool) {
	i := slices.IndexFunc(checks, func(c check[T]) bool { return c.name == name })
	if i < 0 {
		return check[T]{}, false
	}
	return checks[i], true
}

// inapplicable says that a check does not apply, and why.
type inapplicable struct{ why string }

func (i *inapplicable) Error() string { return i.why }

func notApplicable(format string, args ...any) error {
	return &inapplicable{fmt.Sprintf(format, args...)}
}

// fixed is a fault with another remedy than that of its check.
type fixed struct {
	error
	fix string
}

// withFix says what to do about err.
func withFix(err error, format string, args ...any) error {
	return &fixed{err, fmt.Sprintf(format, args...)}
}

// outcome is how a check ended, as the process that ran it says.
type outcome struct {
	Status Status
	Reason string
	Fix    string
	Stack  []string // where the plugin crashed
	Lines  []string // of a check that observes
	// Node is what the plugin reports, after a device plugin's check of its inventory.
	Node *node `json:",omitempty"`
	// Placed are allocations that the plugin made, after a scheduler plugin's check of them.
	Placed []placed `json:",omitempty"`

	ended bool // the process that ran the check has ended, and has not said how the check did
}

// perform runs the check.
func (c check[T]) perform(subject T) outcome {
	var o outcome
	err := func() (err error) {
		defer func() { // of calls that are not contained, as they are trivial in most plugins
			if cause := recover(); cause != nil {
				err = &crash{fmt.Errorf("panic: %v", cause), fixPanic, frames(string(debug.Stack()))}
			}
		}()
		if c.observe != nil {
			o.Lines, err = c.observe(subject)
			return err
		}
		return c.run(subject)
	}()
	var not *inapplicable
	var remedy *fixed
	switch {
	case err == nil:
		o.Status = OK
	case errors.As(err, &not):
		o.Status, o.Reason = NotApplicable, not.why
	default:
		o.Status, o.Reason, o.Fix = Failed, err.Error(), c.fix
		if fix, stack, ok := c.crashed(err); ok {
			o.Fix, o.Stack = fix, stack
		} else if errors.As(err, &remedy) {
			o.Fix = remedy.fix
		}
	}
	return o
}

// crashed returns what is to be done about an error of a check that is a crash, and where it was.
func (c check[T]) crashed(err error) (fix string, stack []string, ok bool) {
	var found *crash
	if !errors.As(err, &found) {
		return "", nil, false
	}
	if c.provokes {
		return found.fix + ": " + c.fix, found.stack, true
	}
	return found.fix, found.stack, true
}

// compare returns the outcome of a check that observes, after it ran in two processes.
func (c check[T]) compare(first, second outcome) outcome {
	if first.Status != OK {
		return first
	}
	if second.Status != OK || slices.Equal(first.Lines, second.Lines) {
		return second
	}
	o := outcome{Status: Failed, Fix: c.fix}
	for i := range max(len(first.Lines), len(second.Lines)) {
		a, b := "nothing", "nothing"
		if i < len(first.Lines) {
			a = first.Lines[i]
		}
		if i < len(second.Lines) {
			b = second.Lines[i]
		}
		if a != b {
			o.Reason = fmt.Sprintf("one process says %s, another one %s", brief(a), brief(b))
			break
		}
	}
	return o
}

// maxBrief bounds what is quoted of a plugin.
const maxBrief = 300

// brief shortens a text that quotes a plugin.
func brief(text string) string {
	return truncate.Ellipsize(text, maxBrief)
}
