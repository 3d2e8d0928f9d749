// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package report

// Comparison says with which baseline a variant is compared, and how well it should do.
type Comparison struct {
	Variant  string `json:"variant"`
	Baseline string `json:"baseline"`
	// Bound is the least ratio that the lower 95 % bound should reach: of pods per second, and of
	// the baseline's CPU per pod to the variant's.
	Bound float64 `json:"bound"`
}

func (c Comparison) String() string { return c.Variant + " / " + c.Baseline }

// Pair is what was measured for one comparison. Both variants have a sample of each round, in their
// order.
type Pair struct {
	Comparison `json:"comparison"`
	OfVariant  Measured `json:"ofWay"`
	OfBaseline Measured `json:"ofYardstick"`
	// WhatIfs is how many questions the variant's scheduler has answered, while batches were
	// measured and until their pods were gone.
	WhatIfs int64 `json:"whatIfs,omitempty"`
}

// Measured is what was measured of one variant for one comparison.
type Measured struct {
	Samples []Sample `json:"samples"`
	// Points has milliseconds per pod by extension point, over all samples, as the scheduler's own
	// metrics have them.
	Points map[string]float64 `json:"millisecondsPerPodByPoint"`
	// Memory is what the scheduler had after all samples.
	Memory Memory `json:"memory"`
	// OwnPart is the part of the scheduler's CPU time that was spent in this project's functions,
	// without the API call that binds; 0 for upstream's scheduler, and without a profile.
	OwnPart float64 `json:"ownPart,omitempty"`
}

// Size is what was measured with one number of nodes, of which some were full.
type Size struct {
	Nodes, Full int
	Pairs       []Pair
}
