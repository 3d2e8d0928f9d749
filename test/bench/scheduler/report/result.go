// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"os"
	"slices"
)

// Result is all that a run has to say.
type Result struct {
	Machine string       `json:"machine"`
	Rounds  int          `json:"rounds"`
	Sizes   []SizeResult `json:"sizes"`
	Growths []Growth     `json:"growths,omitempty"`
}

// SizeResult is what was found with one number of nodes.
type SizeResult struct {
	Nodes  int         `json:"nodes"`
	Ways   []WayResult `json:"ways"`
	Ratios []Ratio     `json:"ratios"`
}

// WayResult has the medians of a way's rounds, and the rounds.
type WayResult struct {
	Name            string             `json:"name"`
	PodsPerSecond   float64            `json:"podsPerSecond"`
	CPUPerPod       float64            `json:"cpuMillisecondsPerPod"`
	OwnMicroseconds float64            `json:"ownMicrosecondsPerPod,omitempty"`
	Points          map[string]float64 `json:"millisecondsPerPodByPoint"`
	Samples         []Sample           `json:"samples"`
}

// New puts the samples together. Ways that have none are left out, and so are comparisons with them.
func New(machine string, rounds int, ways []string, comparisons []Comparison, sizes []Size) *Result {
	r := &Result{Machine: machine, Rounds: rounds}
	for _, size := range sizes {
		out := SizeResult{Nodes: size.Nodes}
		for _, way := range ways {
			if samples := size.Samples[way]; len(samples) > 0 {
				out.Ways = append(out.Ways, summary(way, samples))
			}
		}
		for _, c := range comparisons {
			own, yardstick := size.Samples[c.Way], size.Samples[c.Yardstick]
			if len(own) > 0 && len(yardstick) > 0 {
				out.Ratios = append(out.Ratios, ratiosOf(c, own, yardstick)...)
			}
		}
		r.Sizes = append(r.Sizes, out)
	}
	r.Growths = growthsOf(r.Sizes)
	return r
}

func summary(name string, samples []Sample) WayResult {
	w := WayResult{Name: name, Samples: samples, Points: map[string]float64{},
		PodsPerSecond: medianOf(samples, Sample.PodsPerSecond),
		CPUPerPod:     medianOf(samples, Sample.CPUPerPod),
	}
	known := slices.DeleteFunc(slices.Clone(samples), func(s Sample) bool { return s.OwnMicroseconds == 0 })
	if len(known) > 0 {
		w.OwnMicroseconds = medianOf(known, func(s Sample) float64 { return s.OwnMicroseconds })
	}
	for _, s := range samples {
		for point := range s.Points {
			w.Points[point] = medianOf(samples, func(s Sample) float64 { return s.Points[point] })
		}
	}
	return w
}

func medianOf(samples []Sample, value func(Sample) float64) float64 {
	values := make([]float64, len(samples))
	for i, s := range samples {
		values[i] = value(s)
	}
	return median(values)
}

// way returns what was found for a way, nil if it was left out.
func (s *SizeResult) way(name string) *WayResult {
	at := slices.IndexFunc(s.Ways, func(w WayResult) bool { return w.Name == name })
	if at < 0 {
		return nil
	}
	return &s.Ways[at]
}

// WriteJSON writes everything, the samples too.
func (r *Result) WriteJSON(path string) error {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(raw, '\n'), 0o644)
}
