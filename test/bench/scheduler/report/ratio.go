// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"

	"github.com/kubedevice/kubedevice/test/bench/statistics"
)

// Ratio compares a variant with its baseline, round by round. More is better.
type Ratio struct {
	Comparison
	// Of is what is compared: throughput, or the CPU per pod of the baseline to that of the
	// variant.
	Of     string  `json:"of"`
	Median float64 `json:"median"`
	// Lower and Upper are the 95 % bounds, one-sided each; 0 when there were too few rounds.
	Lower float64 `json:"lower"`
	Upper float64 `json:"upper"`
	Verdict
}

// The things that are compared.
const (
	throughput = "pods/s"
	cpu        = "CPU"
)

func ratiosOf(p Pair) []Ratio {
	ratios := []Ratio{
		newRatio(p.Comparison, throughput, p.OfVariant.Samples, p.OfBaseline.Samples, Sample.PodsPerSecond),
		newRatio(p.Comparison, cpu, p.OfBaseline.Samples, p.OfVariant.Samples, Sample.CPUPerPod),
	}
	if p.WhatIfs > 0 { // whose CPU is none of the pods'
		ratios[1].Bound = 0
		ratios[1].Verdict = Verdict{fmt.Sprintf("no goal: that of what-ifs is in it, %d in all", p.WhatIfs)}
	}
	return ratios
}

func newRatio(c Comparison, of string, above, below []Sample, value func(Sample) float64) Ratio {
	ratios := make([]float64, len(above))
	for i := range ratios {
		ratios[i] = value(above[i]) / value(below[i])
	}
	r := Ratio{Comparison: c, Of: of, Median: statistics.Median(ratios), Verdict: open}
	var ok bool
	if r.Lower, r.Upper, ok = statistics.Bounds(ratios); ok {
		r.Verdict = verdict(r.Lower >= c.Bound)
	}
	return r
}

// Growth is how a variant's time in the device plugin grows with the cluster: from 500 nodes to
// 5,000.
type Growth struct {
	Variant string  `json:"variant"`
	Factor  float64 `json:"factor"`
	Bound   float64 `json:"bound"`
	Verdict
}

// The sizes that growth is about, and its bound.
const (
	fewNodes, manyNodes = 500, 5000
	growthBound         = 3
)

func growthsOf(sizes []SizeResult) []Growth {
	var few, many *SizeResult
	for i := range sizes {
		switch sizes[i].Nodes {
		case fewNodes:
			few = &sizes[i]
		case manyNodes:
			many = &sizes[i]
		}
	}
	if few == nil || many == nil {
		return nil
	}
	var growths []Growth
	for _, w := range many.Variants {
		before := few.variant(w.Name)
		if before == nil || before.OwnMicroseconds == 0 || w.OwnMicroseconds == 0 {
			continue
		}
		factor := w.OwnMicroseconds / before.OwnMicroseconds
		growths = append(growths, Growth{Variant: w.Name, Factor: factor, Bound: growthBound,
			Verdict: verdict(factor <= growthBound)})
	}
	return growths
}

// Verdict says whether something that the project set itself holds on this machine.
type Verdict struct {
	Says string `json:"verdict"`
}

// open is the verdict when there is none.
var open = Verdict{fmt.Sprintf("open: bounds need %d rounds or more", 5)}

func verdict(holds bool) Verdict {
	if holds {
		return Verdict{"holds"}
	}
	return Verdict{"DOES NOT HOLD"}
}

func (r Ratio) String() string {
	if r.Bound == 0 {
		return fmt.Sprintf("%s, %s, of %s: median %.3f: %s", r.Variant, r.Of, r.Baseline, r.Median, r.Says)
	}
	if r.Verdict == open {
		return fmt.Sprintf("%s, %s, of %s: at least %.2f wanted: %s", r.Variant, r.Of, r.Baseline, r.Bound, r.Says)
	}
	return fmt.Sprintf("%s, %s, of %s: %.3f, at least %.2f wanted: %s", r.Variant, r.Of, r.Baseline, r.Lower,
		r.Bound, r.Says)
}

func (g Growth) String() string {
	return fmt.Sprintf("%s, the plugin's own time per pod, %d nodes of %d: %.2f, at most %d wanted: %s",
		g.Variant, manyNodes, fewNodes, g.Factor, growthBound, g.Says)
}
