// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"text/tabwriter"

	"github.com/kubedevice/kubedevice/test/bench/statistics"
)

// Trial is one run of a case.
type Trial struct {
	// PodsPerSecond are the pods that were bound while upstream measured, for Seconds.
	PodsPerSecond float64 `json:"podsPerSecond"`
	Seconds       float64 `json:"seconds"`
	// CPUSeconds is what the process took in all: scheduler, API server and preparation.
	CPUSeconds float64 `json:"cpuSeconds"`
}

// Compared are the trials of a case with either variant, in pairs.
type Compared struct {
	Case
	Upstream []Trial `json:"upstream"`
	Ours     []Trial `json:"ours"`
}

// Result is all that was measured.
type Result struct {
	Machine string     `json:"machine"`
	Cases   []Compared `json:"cases"`
}

func machine() string { return fmt.Sprintf("%d CPUs, %s", runtime.NumCPU(), runtime.Version()) }

// ratios returns a value of our trials, divided by that of upstream's trial of the same round.
func (c Compared) ratios(value func(Trial) float64) []float64 {
	ratios := make([]float64, len(c.Ours))
	for i := range ratios {
		ratios[i] = value(c.Ours[i]) / value(c.Upstream[i])
	}
	return ratios
}

func podsPerSecond(t Trial) float64 { return t.PodsPerSecond }
func cpuSeconds(t Trial) float64    { return t.CPUSeconds }

func medianOf(trials []Trial, value func(Trial) float64) float64 {
	values := make([]float64, len(trials))
	for i, trial := range trials {
		values[i] = value(trial)
	}
	return statistics.Median(values)
}

// print writes the table: medians, and the bounds of the ratios where there are enough rounds.
func (r *Result) print(to io.Writer) error {
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "%s; medians\n\n", r.Machine)
	fmt.Fprintln(table, "case\trounds\tupstream pods/s\tours pods/s\tratio\tlower 95%\tupper 95%\tCPU of all, ratio\t")
	for _, c := range r.Cases {
		ratios := c.ratios(podsPerSecond)
		fmt.Fprintf(table, "%v\t%d\t%.0f\t%.0f\t%.3f\t", c.Case, len(c.Ours), medianOf(c.Upstream, podsPerSecond),
			medianOf(c.Ours, podsPerSecond), statistics.Median(ratios))
		if lower, upper, ok := statistics.Bounds(ratios); ok {
			fmt.Fprintf(table, "%.3f\t%.3f\t", lower, upper)
		} else {
			fmt.Fprint(table, "-\t-\t")
		}
		fmt.Fprintf(table, "%.3f\t\n", statistics.Median(c.ratios(cpuSeconds)))
	}
	return table.Flush()
}

// write writes the table, and all numbers as JSON, to files of that name in a directory.
func (r *Result) write(directory, name string) error {
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return err
	}
	table, err := os.Create(filepath.Join(directory, name+".txt"))
	if err != nil {
		return err
	}
	if err := r.print(table); err != nil {
		return err
	}
	if err := table.Close(); err != nil {
		return err
	}
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(directory, name+".json"), append(raw, '\n'), 0o644)
}
