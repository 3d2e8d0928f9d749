// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestGoalsAreHeldAgainstEveryMeasurement(t *testing.T) {
	r := &result{Measurements: []measurement{
		{
			Pods: 30, Programs: map[string]program{kubecri: {CPUPercent: 0.3, RSS: 60 << 20}},
			Writes: map[string]int{"kubelet": 9},
		},
		{
			Pods: 110, Programs: map[string]program{kubecri: {CPUPercent: 0.31, RSS: 60<<20 + 1}},
			Writes: map[string]int{kubecri: 1},
		},
	}}
	var holds []bool
	for _, g := range goalsOf(r) {
		holds = append(holds, g.Holds)
	}
	if diff := cmp.Diff([]bool{true, true, true, false, false, false}, holds); diff != "" {
		t.Errorf("goals that hold (-want +got):\n%s", diff)
	}
	var out strings.Builder
	r.Goals = goalsOf(r)
	if err := r.print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"110 pods: kubecri's CPU, percent of a core: 0.31, at most 0.30: DOES NOT HOLD",
		"30 pods: kubecri's RSS, MiB: 60.00, at most 60.00: holds"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the text lacks %q:\n%s", want, out.String())
		}
	}
}

func TestWritesAreCountedByClient(t *testing.T) {
	log := filepath.Join(t.TempDir(), "audit.log")
	text := `{"userAgent":"kubecri/v1.37.1 (linux/amd64)","verb":"patch"}
{"userAgent":"kubelet/v1.37.1 (linux/amd64) kubernetes/abc"}
{"userAgent":"kubelet/v1.37.1 (linux/amd64) kubernetes/abc"}
{"userAgent":"kubec`
	if err := os.WriteFile(log, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := writesOf(log)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int{"kubecri": 1, "kubelet": 2}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestNumbersOfPodsAscend(t *testing.T) {
	for text, want := range map[string][]int{"30,110": {30, 110}, "8": {8}, "0": nil, "30,30": nil, "x": nil} {
		got, err := ascending(text)
		if diff := cmp.Diff(want, got); diff != "" && err == nil || (err == nil) != (want != nil) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}
