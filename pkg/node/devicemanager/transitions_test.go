// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// walkTransitions holds that the comment in a file has just these transitions, each as
// "From when -> To", and walks each of them: walk returns the states on the way. Between two of
// them there must be a transition that the comment has.
func walkTransitions(t *testing.T, file string, names []string, walk func(*testing.T, string) []string) {
	t.Helper()
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile(`(?m)^//\t(\w+) +(\S.*?) +-> (\w+)$`)
	documented, allowed := map[string]bool{}, map[string]bool{}
	step := func(from, to string) string { return strings.ToLower(from + " -> " + to) }
	for _, match := range row.FindAllStringSubmatch(string(source), -1) {
		name := match[1] + " " + match[2] + " -> " + match[3]
		documented[name] = true
		if !slices.Contains(names, name) {
			t.Errorf("no test walks %q", name)
		}
		allowed[step(match[1], match[3])] = true
	}
	for _, name := range names {
		if !documented[name] {
			t.Errorf("the comment does not have %q", name)
		}
		t.Run(name, func(t *testing.T) {
			seen := slices.Compact(walk(t, name))
			from, rest, _ := strings.Cut(name, " ")
			_, to, _ := strings.Cut(rest, "-> ")
			walked := false
			for i := range seen[1:] {
				now := step(seen[i], seen[i+1])
				walked = walked || now == step(from, to)
				if !allowed[now] {
					t.Errorf("the resource went from %s, which the comment does not have", now)
				}
			}
			if !walked {
				t.Errorf("the resource was %v, want %s", seen, step(from, to))
			}
		})
	}
}
