// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestAQuantileIsOneOfTheValues(t *testing.T) {
	values := []time.Duration{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	for part, want := range map[float64]time.Duration{0: 1, 0.1: 1, 0.11: 2, 0.5: 5, 0.99: 10, 1: 10} {
		if got := quantile(values, part); got != want {
			t.Errorf("quantile %v: %v, want %v", part, got, want)
		}
	}
	if got := quantile(values[:1], 0.5); got != 1 {
		t.Errorf("of a single value: %v", got)
	}
}

func TestCostsOfAProxyAreComparedRoundByRound(t *testing.T) {
	round := func(took time.Duration, cpu time.Duration, peak int64) sample {
		return sample{[]time.Duration{took * time.Microsecond}, cpu * time.Microsecond, peak}
	}
	// The second round was slow for all.
	without := []sample{round(10, 7, 5), round(110, 7, 5), round(12, 7, 5)}
	own := []sample{round(13, 4, 30), round(115, 6, 10), round(16, 5, 20)}
	if got, want := costOf(own, without, false), (cost{P50: 4, P99: 5, CPU: 5, Peak: 20}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got, want := costOf(without, without, true), (cost{P50: 12, P99: 110, Peak: 5}); got != want {
		t.Errorf("direct: got %+v, want %+v", got, want)
	}
}

func TestBuildsAreComparedRoundByRound(t *testing.T) {
	round := func(took, cpu time.Duration) sample {
		return sample{[]time.Duration{took * time.Microsecond}, cpu * time.Microsecond, 0}
	}
	all := []*workload{{name: "list"}, {name: "short"}}
	taken := samples{
		// The second round was slow for both.
		"list": {
			kubecri: {round(11, 2), round(110, 6), round(12, 2)},
			other:   {round(10, 1), round(100, 3), round(10, 1)},
		},
		// It took less CPU than can be read.
		"short": {kubecri: {round(10, 0)}, other: {round(10, 0)}},
	}
	want := []comparison{
		{Workload: "list", Time: ratio{Median: 1.1}, CPU: ratio{Median: 2}},
		{Workload: "short", Time: ratio{Median: 1}},
	}
	if got := compareBuilds(all, taken); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := compareBuilds(all, samples{"list": {kubecri: {round(1, 1)}}}); got != nil {
		t.Errorf("without another build: %v", got)
	}
}

func TestAGoalHoldsUpToItsBound(t *testing.T) {
	for name, test := range map[string]struct {
		goal goal
		want bool
	}{
		"at the bound":                 {ratioGoal("", 3, 1, 3), true},
		"above it":                     {ratioGoal("", 3.1, 1, 3), false},
		"below it":                     {ratioGoal("", 1, 1, 3), true},
		"a baseline that adds nothing": {ratioGoal("", 1, 0, 3), false},
	} {
		if test.goal.Holds != test.want || strings.Contains(test.goal.String(), "DOES NOT") == test.want {
			t.Errorf("%s: %v", name, test.goal)
		}
	}
}
