// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"runtime"
	"slices"
	"strings"

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
