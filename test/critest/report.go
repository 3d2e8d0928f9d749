// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Result is how one spec ended on one side.
type Result struct {
	// Spec is its name: its text and that of what it stands in.
	Spec string `json:"-"`
	// State is ginkgo's word: passed, failed, skipped, panicked, timedout and so on.
	State string `json:"state"`
	// Message is why, for all states but passed.
	Message string `json:"message,omitempty"`
	// Seconds is how long it took.
	Seconds float64 `json:"seconds"`
}

// equal says whether two results are the same as far as results repeat: messages of failures have
// names and times in them.
func (r Result) equal(other Result) bool {
	return r.State == other.State && (r.State != stateSkipped || r.Message == other.Message)
}

// States that matter here.
const (
	statePassed  = "passed"
	stateSkipped = "skipped"
)

// ginkgoReport is as much of ginkgo's JSON report as is of use.
type ginkgoReport []struct {
	SpecReports []struct {
		ContainerHierarchyTexts []string
		LeafNodeType            string
		LeafNodeText            string
		State                   string
		RunTime                 int64 // nanoseconds
		Failure                 struct{ Message string }
	}
}

// allSpecs is what every spec's text begins with.
const allSpecs = "[k8s.io] "

// decode returns the results of a report, sorted by the specs' names. A suite that failed before
// its first spec is an error.
func decode(content []byte) ([]Result, error) {
	var report ginkgoReport
	if err := json.Unmarshal(content, &report); err != nil {
		return nil, fmt.Errorf("read critest's report: %w", err)
	}
	var results []Result
	for _, suite := range report {
		for _, spec := range suite.SpecReports {
			name := strings.TrimPrefix(strings.Join(append(spec.ContainerHierarchyTexts, spec.LeafNodeText), " "),
				allSpecs)
			if spec.LeafNodeType != "It" {
				if spec.State != statePassed {
					return nil, fmt.Errorf("critest: %s %s: %s", spec.LeafNodeType, spec.State, spec.Failure.Message)
				}
				continue
			}
			results = append(results, Result{Spec: name, State: spec.State, Message: spec.Failure.Message,
				Seconds: float64(spec.RunTime) / 1e9})
		}
	}
	if len(results) == 0 {
		return nil, errors.New("read critest's report: it has no specs")
	}
	slices.SortFunc(results, func(a, b Result) int { return strings.Compare(a.Spec, b.Spec) })
	return results, nil
}
