// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/kubedevice/kubedevice/test/cluster"
)

// Comparison is what was found for one runtime.
type Comparison struct {
	Runtime cluster.Runtime `json:"runtime"`
	// Seconds is how long all took.
	Seconds float64 `json:"seconds"`
	// Specs are those that were chosen, by name.
	Specs []*Spec `json:"specs"`
}

// Spec is one of critest's specs, and how it ended on the two sides: first in the run of all, then
// each time that it was run again.
type Spec struct {
	Name    string   `json:"name"`
	Verdict Verdict  `json:"verdict"`
	Direct  []Result `json:"direct"`
	Kubecri []Result `json:"kubecri"`
}

// Verdict is what the results of a spec say.
type Verdict string

// The verdicts.
const (
	// Passed on both sides.
	Passed Verdict = "passed"
	// Failed on both sides: that is the runtime's or the machine's, and says nothing of kubecri.
	Failed Verdict = "failed"
	// Skipped on both sides, for the same reason.
	Skipped Verdict = "skipped"
	// Unsteady is a spec whose sides differed once, and which passed on both each time that it was
	// run again, alone.
	Unsteady Verdict = "unsteady"
	// Differs is every other spec whose sides differed.
	Differs Verdict = "differs"
)

// stateMissing is that of a spec that a side's report does not have.
const stateMissing = "missing"

// add takes the results of the run of all specs that focus chooses.
func (c *Comparison) add(focus *regexp.Regexp, direct, kubecri []Result) {
	byName := map[string]*Spec{}
	spec := func(name string) *Spec {
		if byName[name] == nil {
			byName[name] = &Spec{Name: name}
		}
		return byName[name]
	}
	for _, result := range direct {
		spec(result.Spec).Direct = []Result{result}
	}
	for _, result := range kubecri {
		spec(result.Spec).Kubecri = []Result{result}
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		s := byName[name]
		s.complete(1)
		if s.chosen(focus) {
			s.judge()
			c.Specs = append(c.Specs, s)
		}
	}
}

// addAgain takes the results of a run of some specs.
func (c *Comparison) addAgain(specs []*Spec, direct, kubecri []Result) {
	find := func(results []Result, name string) []Result {
		i := slices.IndexFunc(results, func(r Result) bool { return r.Spec == name })
		if i < 0 {
			return nil
		}
		return results[i : i+1]
	}
	for _, s := range specs {
		s.Direct = append(s.Direct, find(direct, s.Name)...)
		s.Kubecri = append(s.Kubecri, find(kubecri, s.Name)...)
		s.complete(max(len(s.Direct), len(s.Kubecri)))
		s.judge()
	}
}

// unclear are the specs whose sides have differed.
func (c *Comparison) unclear() []*Spec { return c.With(Differs, Unsteady) }

// With returns the specs with one of some verdicts.
func (c *Comparison) With(verdicts ...Verdict) []*Spec {
	var found []*Spec
	for _, s := range c.Specs {
		if slices.Contains(verdicts, s.Verdict) {
			found = append(found, s)
		}
	}
	return found
}

// complete gives both sides a number of results.
func (s *Spec) complete(runs int) {
	for len(s.Direct) < runs {
		s.Direct = append(s.Direct, Result{Spec: s.Name, State: stateMissing})
	}
	for len(s.Kubecri) < runs {
		s.Kubecri = append(s.Kubecri, Result{Spec: s.Name, State: stateMissing})
	}
}

// chosen says whether the spec was to be run. One that is left out is given the reason.
func (s *Spec) chosen(focus *regexp.Regexp) bool {
	if !focus.MatchString(s.Name) {
		return false
	}
	for _, side := range [][]Result{s.Direct, s.Kubecri} {
		if side[0].State == stateSkipped {
			side[0].Message = cmp.Or(side[0].Message, leftOut.reason(s.Name))
		}
	}
	return true
}

// judge finds the verdict.
func (s *Spec) judge() {
	again := len(s.Direct) > 1
	passed := func(r Result) bool { return r.State == statePassed }
	switch first := s.Direct[0]; {
	case again && all(s.Direct[1:], passed) && all(s.Kubecri[1:], passed):
		s.Verdict = Unsteady
	case again || !first.equal(s.Kubecri[0]):
		s.Verdict = Differs
	case passed(first):
		s.Verdict = Passed
	case first.State == stateSkipped:
		s.Verdict = Skipped
	default:
		s.Verdict = Failed
	}
}

func all(results []Result, are func(Result) bool) bool {
	return !slices.ContainsFunc(results, func(r Result) bool { return !are(r) })
}

// focusOn is a regular expression for some specs.
func focusOn(specs []*Spec) string {
	var names []string
	for _, s := range specs {
		names = append(names, regexp.QuoteMeta(s.Name))
	}
	return strings.Join(names, "|")
}
