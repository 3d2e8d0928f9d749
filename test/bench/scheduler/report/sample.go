// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package report turns what rounds of a benchmark measured into medians, ratios of paired rounds
// with their confidence bounds, and verdicts, as a table and as JSON.
//
// A machine that does other things too is slow for whole rounds at a time. So variants are compared
// within each round, in which they take turns, and only the ratios are put together over the
// rounds.
package report

// Sample is what one variant cost in one round.
type Sample struct {
	// Pods that were bound.
	Pods int `json:"pods"`
	// Seconds that passed until the last of them was, batch by batch.
	Seconds float64 `json:"seconds"`
	// CPUSeconds of the scheduler's process in that time.
	CPUSeconds float64 `json:"cpuSeconds"`
}

// Plus returns what both cost together.
func (s Sample) Plus(other Sample) Sample {
	return Sample{s.Pods + other.Pods, s.Seconds + other.Seconds, s.CPUSeconds + other.CPUSeconds}
}

// PodsPerSecond is the throughput.
func (s Sample) PodsPerSecond() float64 { return float64(s.Pods) / s.Seconds }

// CPUPerPod is in milliseconds.
func (s Sample) CPUPerPod() float64 { return 1000 * s.CPUSeconds / float64(s.Pods) }
