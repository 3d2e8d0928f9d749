// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"fmt"
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
	Nodes int `json:"nodes"`
	// Full is how many of them have no device left from the start.
	Full     int             `json:"full,omitempty"`
	Variants []VariantResult `json:"variants"`
	Ratios   []Ratio         `json:"ratios"`
	// Footprints are there for sizes that have a bound for memory.
	Footprints []Footprint `json:"footprints,omitempty"`
	// Pairs have all that was measured.
	Pairs []Pair `json:"pairs"`
}

// VariantResult sums up a variant over all its comparisons: medians of the samples, and means of
// what is known of all rounds of a comparison together.
type VariantResult struct {
	Name            string             `json:"name"`
	PodsPerSecond   float64            `json:"podsPerSecond"`
	CPUPerPod       float64            `json:"cpuMillisecondsPerPod"`
	OwnMicroseconds float64            `json:"ownMicrosecondsPerPod,omitempty"`
	Memory          Memory             `json:"memory"`
	Points          map[string]float64 `json:"millisecondsPerPodByPoint"`
}

// New puts together what was measured in so many rounds.
func New(machine string, rounds int, sizes []Size) *Result {
	r := &Result{Machine: machine, Rounds: rounds}
	for _, size := range sizes {
		out := SizeResult{Nodes: size.Nodes, Full: size.Full, Variants: variantsOf(size.Pairs),
			Footprints: footprintsOf(size), Pairs: size.Pairs}
		for _, pair := range size.Pairs {
			out.Ratios = append(out.Ratios, ratiosOf(pair)...)
		}
		r.Sizes = append(r.Sizes, out)
	}
	r.Growths = growthsOf(r.Sizes)
	return r
}

// variant returns what was found for a variant, nil if it was left out.
func (s *SizeResult) variant(name string) *VariantResult {
	at := slices.IndexFunc(s.Variants, func(w VariantResult) bool { return w.Name == name })
	if at < 0 {
		return nil
	}
	return &s.Variants[at]
}

// WriteJSON writes everything, the samples too.
func (r *Result) WriteJSON(path string) error {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(raw, '\n'), 0o644)
}

func (s *SizeResult) String() string {
	if s.Full == 0 {
		return fmt.Sprintf("%d nodes", s.Nodes)
	}
	return fmt.Sprintf("%d nodes, %d full", s.Nodes, s.Full)
}
