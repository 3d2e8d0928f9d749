// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import "fmt"

// Memory is the memory of a scheduler, in MiB.
type Memory struct {
	// Resident is that of the process, and Anonymous the part of it that no file backs. Heap is
	// Go's, garbage and what is not resident included.
	Resident  float64 `json:"residentMiB"`
	Anonymous float64 `json:"anonymousMiB"`
	Heap      float64 `json:"heapMiB"`
}

// Footprint compares the resident memory of a variant's scheduler with that of its baseline, which
// has seen the same nodes and pods.
type Footprint struct {
	Comparison
	Own   Memory `json:"own"`
	Other Memory `json:"other"`
	// Most is the most that Own may be, in MiB.
	Most float64 `json:"most"`
	Verdict
}

// The bounds of memory: with few nodes what plugins and caches take at all, with many what they
// take for a node.
const (
	fewNodesMore   = 128 // MiB above the baseline
	manyNodesTimes = 1.2 // of the baseline
)

// footprintsOf returns the comparisons of memory of a size that has a bound.
func footprintsOf(size Size) []Footprint {
	var footprints []Footprint
	for _, p := range size.Pairs {
		own, other := p.OfVariant.Memory, p.OfBaseline.Memory
		most := other.Resident + fewNodesMore
		if size.Nodes == manyNodes {
			most = other.Resident * manyNodesTimes
		} else if size.Nodes != fewNodes {
			continue
		}
		footprints = append(footprints, Footprint{Comparison: p.Comparison, Own: own, Other: other, Most: most,
			Verdict: verdict(own.Resident <= most)})
	}
	return footprints
}

func (f Footprint) String() string {
	return fmt.Sprintf("%s, resident memory compared with %s: %.0f MiB (%.0f without files) to %.0f (%.0f), "+
		"at most %.0f wanted: %s", f.Variant, f.Baseline, f.Own.Resident, f.Own.Anonymous, f.Other.Resident,
		f.Other.Anonymous, f.Most, f.Says)
}
