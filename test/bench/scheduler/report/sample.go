// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package report turns what rounds of a benchmark measured into medians, ratios of paired rounds with their confidence
// bounds, and verdicts, as a table and as JSON.
//
// A machine that does other things too is slow for whole rounds at a time. So ways are compared within each round, in
// which they take turns, and only the ratios are put together over the rounds.
package report

// Sample is what one way cost in one round.
type Sample struct {
	// Pods that were bound while it was measured.
	Pods int `json:"pods"`
	// Seconds from the first of them to the last.
	Seconds float64 `json:"seconds"`
	// CPUSeconds of the scheduler's process in that time.
	CPUSeconds float64 `json:"cpuSeconds"`
	// Points has milliseconds per pod by extension point, as the scheduler's own metrics have them.
	Points map[string]float64 `json:"millisecondsPerPodByPoint"`
	// OwnMicroseconds is the time per pod that was spent in the device plugin itself, over all nodes, up to and including
	// Reserve; 0 without it, and in a round of which it is not known.
	OwnMicroseconds float64 `json:"ownMicrosecondsPerPod,omitempty"`
}

// PodsPerSecond is the throughput.
func (s Sample) PodsPerSecond() float64 { return float64(s.Pods) / s.Seconds }

// CPUPerPod is in milliseconds.
func (s Sample) CPUPerPod() float64 { return 1000 * s.CPUSeconds / float64(s.Pods) }

// Comparison says with which yardstick a way is compared, and how well it should do.
type Comparison struct {
	Way, Yardstick string
	// Bound is the least ratio that the lower 95 % bound should reach: of pods per second, and of the yardstick's CPU per pod
	// to the way's.
	Bound float64
}

// Size is what was measured with one number of nodes. Every way has as many samples as there were rounds, in their order.
type Size struct {
	Nodes   int
	Samples map[string][]Sample
}
