// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
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

func TestWhatAProxyAddsIsTakenRoundByRound(t *testing.T) {
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

func TestAGoalHoldsUpToItsBound(t *testing.T) {
	for name, test := range map[string]struct {
		goal goal
		want bool
	}{
		"at the bound":                 {below("", 3, 1, 3), true},
		"above it":                     {below("", 3.1, 1, 3), false},
		"below it":                     {below("", 1, 1, 3), true},
		"a baseline that adds nothing": {below("", 1, 0, 3), false},
	} {
		if test.goal.Holds != test.want || strings.Contains(test.goal.String(), "DOES NOT") == test.want {
			t.Errorf("%s: %v", name, test.goal)
		}
	}
}
