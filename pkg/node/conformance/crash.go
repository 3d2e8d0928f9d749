// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/kubedevice/kubedevice/pkg/plugincall"
)

// What to do about a plugin that did not return from a call.
const (
	fixPanic     = "correct the panic"
	fixHang      = "return in time, and do slow work in a goroutine of the plugin's own"
	fixExit      = "return an error: a plugin must not end the process"
	fixGoroutine = "recover panics in each goroutine that the plugin starts: the hosts cannot, and end"
)

// crash says that a plugin panicked, hung or ended the process.
type crash struct {
	error
	fix   string
	stack []string // frames of the plugin, the innermost one first; see frames
}

func (c *crash) Unwrap() error { return c.error }

// crashOf returns a failed call as a crash. stack is that of a panic, as debug.Stack has it.
func crashOf(err error, failure *plugincall.Failure, stack string) error {
	switch failure.Outcome {
	case plugincall.Panicked:
		return &crash{err, fixPanic, frames(stack)}
	case plugincall.TimedOut:
		return &crash{err, fixHang, stuck()}
	default:
		return err
	}
}

// isHost reports whether a function is one of the programs that call plugins.
func isHost(function string) bool {
	own, ok := strings.CutPrefix(function, "github.com/kubedevice/kubedevice/pkg/")
	return ok && !strings.HasPrefix(own, "sdk/") && !strings.Contains(own, "/testdata/") ||
		strings.HasPrefix(function, "plugin.")
}

// maxFrames bounds a stack in a report.
const maxFrames = 20

// frames returns the frames of a plugin out of the trace of one goroutine: a line for each, of
// function, file and line. What the runtime did after a panic is left out, and what is below the
// call of the plugin.
func frames(trace string) (list []string) {
	lines := strings.Split(trace, "\n")
	for i := 0; i+1 < len(lines); i++ {
		function, place := lines[i], lines[i+1]
		if !strings.HasPrefix(place, "\t") {
			continue
		}
		i++
		switch {
		case strings.HasPrefix(function, "panic("):
			list = nil // functions that ran because of it
		case strings.HasPrefix(function, "runtime."), strings.HasPrefix(function, "runtime/"):
		case isHost(function) && list == nil:
		case isHost(function), strings.HasPrefix(function, "created by "), len(list) == maxFrames:
			return list
		default:
			place, _, _ = strings.Cut(strings.TrimSpace(place), " +0x")
			if end := strings.LastIndexByte(function, '('); end > 0 {
				function = function[:end]
			}
			list = append(list, function+" "+place)
		}
	}
	return list
}

// stuck returns the frames of a call that has not returned, in this process.
func stuck() []string {
	buffer := make([]byte, 1<<20)
	return stuckIn(string(buffer[:runtime.Stack(buffer, true)]))
}

// stuckIn returns the frames of the first goroutine in a trace of all that is in a call of the
// plugin.
func stuckIn(trace string) []string {
	for goroutine := range strings.SplitSeq(trace, "\n\n") {
		if list := frames(goroutine); slices.ContainsFunc(list, ofPlugin) {
			return list
		}
	}
	return nil
}

// ofPlugin reports whether a frame is neither of Go's standard library nor of a host: the paths of
// all other packages have a domain, and that of a main package its module.
func ofPlugin(frame string) bool {
	function, _, _ := strings.Cut(frame, " ")
	first, _, ok := strings.Cut(function, "/")
	return ok && (strings.Contains(first, ".") || first == "plugin")
}

// exited returns the outcome of a check whose process ended by itself. said is what it wrote last.
func exited(ended, said string) outcome {
	o := outcome{Status: Failed, Reason: "it ended the process that called it: " + ended, Fix: fixExit, ended: true}
	for _, begin := range []string{"panic: ", "fatal error: "} {
		if _, trace, ok := strings.Cut("\n"+said, "\n"+begin); ok {
			o.Fix = fixPanic
			if begin == "panic: " {
				o.Fix = fixGoroutine // all others are recovered
			}
			_, goroutine, _ := strings.Cut(trace, "\n\n")
			goroutine, _, _ = strings.Cut(goroutine, "\n\n")
			o.Stack = frames(goroutine)
			return o
		}
	}
	return o
}

// overdue returns the outcome of a check that took too long. said is what its process wrote when it
// was made to quit.
func overdue(limit time.Duration, said string) outcome {
	return outcome{
		Status: Failed, Reason: fmt.Sprintf("it did not end within %v", limit), Fix: fixHang, Stack: stuckIn(said),
		ended: true,
	}
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
