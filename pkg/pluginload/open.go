// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pluginload

import (
	"fmt"
	"plugin"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"
)

// reportToAuthor is the next step for a failure of the plugin's own code.
const reportToAuthor = "report it to the plugin's author"

// opened is an opened, created and prepared plugin.
type opened[T named] struct {
	plugin T
	name   string
}

// openIsolated opens file, creates the plugin and prepares it, within the kind's timeout. The error
// is a *refusal. After a timeout the attempt continues in the background, as nothing can stop it.
func openIsolated[T named](file string, kind Kind[T]) (opened[T], error) {
	var step atomic.Value // the current step
	step.Store("its initialisation")

	type result struct {
		opened opened[T]
		err    error
	}
	done := make(chan result, 1)
	go func() {
		var r result
		returned := false
		defer func() {
			if cause := recover(); cause != nil {
				panicked := refuse(reportToAuthor, "%s panicked: %v", step.Load(), cause)
				panicked.Trace = string(debug.Stack())
				r.err = panicked
			} else if !returned {
				r.err = refuse(reportToAuthor, "%s ended its goroutine", step.Load())
			}
			done <- r
		}()
		r.opened, r.err = openNow(file, kind, func(next string) { step.Store(next) })
		returned = true
	}()

	timer := time.NewTimer(kind.timeout)
	defer timer.Stop()
	select {
	case r := <-done:
		return r.opened, r.err
	case <-timer.C:
		hung := refuse(reportToAuthor, "%s did not end within %v", step.Load(), kind.timeout)
		stacks := make([]byte, maxStderr)
		hung.Trace, hung.Hung = string(stacks[:runtime.Stack(stacks, true)]), true
		return opened[T]{}, hung
	}
}

// openNow is openIsolated without isolation. It reports each step of the plugin's own code.
func openNow[T named](file string, kind Kind[T], enter func(step string)) (opened[T], error) {
	var none opened[T]
	library, err := plugin.Open(file)
	if err != nil {
		return none, refusedByRuntime(file, err)
	}
	symbol, err := library.Lookup(kind.symbol)
	if err != nil {
		return none, refuse("export a function of that name from its package main", "does not export %s", kind.symbol)
	}
	create, ok := symbol.(func() (T, error))
	if !ok {
		return none, refuse(
			fmt.Sprintf("declare it as func %s%s", kind.symbol, strings.TrimPrefix(fmt.Sprintf("%T", create), "func")),
			"%s is a %T, not a %T", kind.symbol, symbol, create,
		)
	}

	enter(kind.symbol)
	created, err := create()
	if err != nil {
		return none, refuse("see the plugin's documentation", "%s returned an error: %v", kind.symbol, err)
	}
	if any(created) == nil {
		return none, refuse(reportToAuthor, "%s returned nil", kind.symbol)
	}
	enter("GetName")
	name := created.GetName()
	enter("New")
	if err := kind.prepare(created); err != nil {
		return none, refuse("see the plugin's documentation", "New returned an error: %v", err)
	}
	return opened[T]{plugin: created, name: name}, nil
}

// refusedByRuntime returns the refusal for an error of plugin.Open.
func refusedByRuntime(file string, err error) error {
	const differs = "plugin was built with a different version of package "
	_, text, found := strings.Cut(err.Error(), "): ") // plugin.Open("…"): …
	if !found {
		text = err.Error()
	}
	if pkg, ok := strings.CutPrefix(text, differs); ok {
		c, err := inspect(file)
		if err != nil {
			return err
		}
		return refuse("rebuild it with this program's versions and flags",
			"is built with a different version of package %s: %s", pkg, explain(hostInfo(), c.info, pkg))
	}
	if text == "plugin already loaded" {
		return refuse("give it a module path of its own in its go.mod and rebuild it",
			"is built from the same package as a plugin that is open")
	}
	return refuse(rebuild+" on a system like this one", "cannot be opened: %s", text)
}
