// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// subjectsSince is the last commit whose subject, and the subjects before it, keep no rule.
const subjectsSince = "bc8346b8d27cfb8e3c622586ef94e304522f80bd"

// maxSubject is how many columns a subject may have: more is cut off in lists of commits.
const maxSubject = 72

// subject is a subject as CONTRIBUTING.md describes it: the places that the commit changes, then
// one sentence without a full stop.
var subject = regexp.MustCompile(`^(Merge .*|Revert .*|[\w./,*{}-]+(, [\w./,*{}-]+)*: [^;]*[^;.])$`)

func TestSubjectsOfCommitsNameOnePlaceAndOneIdea(t *testing.T) {
	output, err := exec.Command("git", "-C", root, "log", "--format=%h %s", subjectsSince+"..HEAD").Output()
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("the checkout has no history since %s: %v", subjectsSince, err)
		}
		t.Skipf("the checkout has no history since %s: %v", subjectsSince, err)
	}
	for line := range strings.Lines(string(output)) {
		hash, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		if columns := utf8.RuneCountInString(text); columns > maxSubject {
			t.Errorf("commit %s: the subject has %d columns, at most %d: %q", hash, columns, maxSubject, text)
		}
		if !subject.MatchString(text) {
			t.Errorf("commit %s: the subject is not \"pkg/dir: imperative verb …\" with one idea: %q", hash, text)
		}
	}
}

func TestTheRuleForSubjects(t *testing.T) {
	for text, want := range map[string]bool{
		"pkg/node/firewall: override the last of two variables": true,
		"docs, README: name the runtime's versions":             true,
		"pkg/{a,b}: share one iterator":                         true,
		"Merge branch 'x'":                                      true,
		"fix the build":                                         false,
		"pkg/a: fix one; pkg/b: fix another":                    false,
		"pkg/a: fix it.":                                        false,
	} {
		if got := subject.MatchString(text); got != want {
			t.Errorf("%q: %t, want %t", text, got, want)
		}
	}
}
