// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package report

// Comparison says with which yardstick a way is compared, and how well it should do.
type Comparison struct {
	Way       string `json:"way"`
	Yardstick string `json:"yardstick"`
	// Bound is the least ratio that the lower 95 % bound should reach: of pods per second, and of
	// the yardstick's CPU per pod to the way's.
	Bound float64 `json:"bound"`
}

func (c Comparison) String() string { return c.Way + " / " + c.Yardstick }

// Pair is what was measured for one comparison. Both ways have a sample of each round, in their
// order.
type Pair struct {
	Comparison  `json:"comparison"`
	OfWay       Measured `json:"ofWay"`
	OfYardstick Measured `json:"ofYardstick"`
}

// Measured is what was measured of one way for one comparison.
type Measured struct {
	Samples []Sample `json:"samples"`
	// Points has milliseconds per pod by extension point, over all samples, as the scheduler's own
	// metrics have them.
	Points map[string]float64 `json:"millisecondsPerPodByPoint"`
	// OwnPart is the part of the scheduler's CPU time that was spent in this project's functions,
	// without the API call that binds; 0 for upstream's scheduler, and without a profile.
	OwnPart float64 `json:"ownPart,omitempty"`
}

// Size is what was measured with one number of nodes, of which some were full.
type Size struct {
	Nodes, Full int
	Pairs       []Pair
}
