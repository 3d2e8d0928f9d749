// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"go/ast"
	"maps"
	"slices"
	"strings"
	"testing"
)

// sleeps are the files below test that may call time.Sleep, with what the time is for. None waits
// for a condition: package await does.
var sleeps = map[string]string{
	"test/browser/page.go":                       "a page is read every 10 ms, as figures of 100 ms are measured by it",
	"test/e2e/differential/offered_test.go":      "a state is to last",
	"test/e2e/differential/published_test.go":    "a device flaps at a certain rate",
	"test/hostile/bench.go":                      "the CPU time of the process is measured in that time",
	"test/integration/scheduler/faulty_test.go":  "a plugin hangs",
	"test/integration/scheduler/leaders_test.go": "churn has nothing to delete before schedulers have bound pods",
	"test/integration/scheduler/readapi_test.go": "the scheduler's API bounds how often it is queried",
	"test/scriptedplugin/plugin.go":              "a script says how long a plugin takes",
}

func TestTestsAwaitConditionsAndDoNotSleep(t *testing.T) {
	found := map[string]bool{}
	for _, s := range sources(t) {
		if !within(s.directory(), "test") || within(s.directory(), "test/third_party") {
			continue
		}
		ast.Inspect(s.file, func(node ast.Node) bool {
			selector, ok := node.(*ast.SelectorExpr)
			if !ok || selector.Sel.Name != "Sleep" {
				return true
			}
			if from, ok := selector.X.(*ast.Ident); ok && from.Name == "time" {
				found[s.path] = true
			}
			return true
		})
	}
	for _, path := range slices.Sorted(maps.Keys(found)) {
		if sleeps[path] == "" {
			t.Errorf("%s sleeps: wait for what it waits for with test/await or clustertest.Await, or add the file to "+
				"sleeps with what the time is for", path)
		}
	}
	for path := range sleeps {
		if !found[path] {
			t.Errorf("sleeps has %s, which does not sleep any more: remove it", path)
		}
	}
}

// riddles are beginnings of test names that say a clause and no promise.
var riddles = []string{"Of", "What", "Who", "It"}

func TestNamesOfTestsArePromises(t *testing.T) {
	for _, s := range sources(t) {
		if !s.test() {
			continue
		}
		for _, declaration := range s.file.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if !ok || function.Recv != nil {
				continue
			}
			name, isTest := strings.CutPrefix(function.Name.Name, "Test")
			if !isTest || strings.HasPrefix(name, "WhatIf") {
				continue
			}
			for _, riddle := range riddles {
				if rest, ok := strings.CutPrefix(name, riddle); ok && rest != "" && upper(rest[0]) {
					t.Errorf("%s: Test%s: name the promise that the test holds, subject first", s.path, name)
				}
			}
		}
	}
}
