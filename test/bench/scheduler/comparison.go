// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/kubedevice/kubedevice/test/bench/scheduler/report"

// comparison is a variant, the baseline that it is held against, and the least ratio that is
// required of them.
type comparison struct {
	variant, baseline variant
	bound             float64
}

// comparisons are the project's goals.
var comparisons = []comparison{
	{plain, upstreamPlain, 0.98},
	{single, upstreamOne, 0.95},
	{linked, upstreamTwo, 0.95},
	{eightGPUs, upstreamEight, 0.95},
	{fraction, upstreamOne, 0.95},
	{mixed, upstreamMixed, 0.95},
	{single, claimedOne, 3},
	{linked, claimedPair, 3},
}

// withWhatIfs compares our scheduler, while it answers as many what-ifs as it can,
// with itself.
var withWhatIfs = comparison{single.named("1 GPU with what-ifs"), single, 0.95}

// reported returns what the report says of the comparison.
func (c comparison) reported() report.Comparison {
	return report.Comparison{Variant: c.variant.name, Baseline: c.baseline.name, Bound: c.bound}
}

// leastBatches is how many batches a round has at least. What else the machine does, or what goes
// on next to it on the same hardware, changes from one second to the next: the shorter the batches,
// the more alike is what both sides meet.
const leastBatches = 4

// fewerClaims is by how much fewer pods a comparison with ResourceClaims takes. They cost several
// times what others do, which is wanted to be seen, and far more than rounds differ by.
const fewerClaims = 2

// split returns how many batches make the wanted pods, or a few more, on so many free nodes, and
// how many pods are in each. They are the same for both variants, so that both fill the cluster
// alike; and their number is even, so that in a round both begin equally often.
func (c comparison) split(nodes, wanted int) (count, pods int) {
	if c.baseline.usesClaims() {
		wanted = (wanted + fewerClaims - 1) / fewerClaims
	}
	fits := min(c.variant.podsOn(nodes, wanted), c.baseline.podsOn(nodes, wanted))
	count = max(leastBatches, (wanted+fits-1)/fits)
	count += count % 2
	return count, (wanted + count - 1) / count
}
