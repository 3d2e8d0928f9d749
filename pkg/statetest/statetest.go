// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package statetest tests that the transitions of a state machine are those that the comment of its
// states documents. Only tests import it.
//
// The comment has one line, indented with a tab, for each transition:
//
//	Serving  the plugin leaves  -> Lost
//
// A state is compared without regard to case and spaces, so that BackingOff is "backing off".
package statetest

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// row is the line of a transition.
var row = regexp.MustCompile(`(?m)^//\t(\w+) +(\S.*?) +-> (\w+)$`)

// Transitions are those that a comment documents. They do not change: concurrent use is safe.
type Transitions struct {
	rows  map[string]bool // as "From when -> To"
	steps map[string]bool // as step returns them
}

// Read returns the transitions in the comments of a Go file. Without any, the test fails.
func Read(t *testing.T, file string) *Transitions {
	t.Helper()
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	found := &Transitions{rows: map[string]bool{}, steps: map[string]bool{}}
	for _, match := range row.FindAllStringSubmatch(string(source), -1) {
		found.rows[match[1]+" "+match[2]+" -> "+match[3]] = true
		found.steps[step(match[1], match[3])] = true
	}
	if len(found.rows) == 0 {
		t.Fatalf("%s documents no transition: write each as a line \"//\tFrom  when  -> To\"", file)
	}
	return found
}

// Allow reports whether the comment documents a transition between the two states. A state that
// stays as it is makes no transition.
func (d *Transitions) Allow(from, to any) bool {
	return name(from) == name(to) || d.steps[step(from, to)]
}

// Walk checks that the comments of a Go file document the transitions that are the keys of walks,
// each as "From when -> To", and no others. It then runs each walk as a subtest: run returns the
// states in their order, of which two in a row may be the same. The transition must be among them,
// and all of them must be documented.
func Walk[W, S any](t *testing.T, file string, walks map[string]W, run func(*testing.T, W) []S) {
	t.Helper()
	documented := Read(t, file)
	for transition := range documented.rows {
		if _, ok := walks[transition]; !ok {
			t.Errorf("no test walks %q, which %s documents: add a walk", transition, file)
		}
	}
	for _, transition := range slices.Sorted(maps.Keys(walks)) {
		if !documented.rows[transition] {
			t.Errorf("%s does not document %q: add a line to the comment of the states", file, transition)
		}
		t.Run(transition, func(t *testing.T) {
			from, _, _ := strings.Cut(transition, " ")
			_, to, _ := strings.Cut(transition, "-> ")
			want, walked := step(from, to), false
			states := run(t, walks[transition])
			for i := 1; i < len(states); i++ {
				walked = walked || step(states[i-1], states[i]) == want
				if !documented.Allow(states[i-1], states[i]) {
					t.Errorf("went from %v to %v, which %s does not document", states[i-1], states[i], file)
				}
			}
			if !walked {
				t.Errorf("the states were %v, want %s", states, want)
			}
		})
	}
}

// step returns a transition as it is compared.
func step(from, to any) string { return name(from) + " -> " + name(to) }

// name returns a state as it is compared.
func name(state any) string {
	return strings.ToLower(strings.ReplaceAll(fmt.Sprint(state), " ", ""))
}
