// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package statistics judges values that were measured several times.
package statistics

import "slices"

// Median returns the middle value, or the mean of the two in the middle. There must be one.
func Median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}

// doubt is the chance that a bound is on the wrong side of what it bounds.
const doubt = 0.05

// Bounds returns the values below and above which the median of what the values are drawn from does
// not lie, each with 95 % confidence. They are two of the values, found by the sign test, which
// supposes nothing about how the values are distributed. ok is false for fewer than five values,
// with which there are no such bounds.
func Bounds(values []float64) (lower, upper float64, ok bool) {
	n := len(values)
	// The chance that exactly k of n draws are below the median is C(n,k) / 2^n.
	chance := 1.0
	for range n {
		chance /= 2
	}
	outside := 0 // values that may be left out at either end
	for sum := chance; sum <= doubt && outside < n; sum += chance {
		outside++
		chance = chance * float64(n-outside+1) / float64(outside)
	}
	if outside == 0 {
		return 0, 0, false
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[outside-1], sorted[n-outside], true
}
