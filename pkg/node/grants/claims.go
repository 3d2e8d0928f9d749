// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

// Grantable returns those of the claims that Grant would grant now next to granted, in their order.
// It leaves out the claims of pods that were granted something before, and all claims to one device
// if there are several: none of these pods holds it yet.
func Grantable(claims, granted []Allocation, capacity Capacity) []Allocation {
	others := make(map[string]*Allocation, len(claims)+len(granted))
	for i := range claims {
		others[claims[i].PodUID] = &claims[i]
	}
	for i := range granted {
		others[granted[i].PodUID] = &granted[i]
	}
	var grantable []Allocation
	for i := range claims {
		claim := &claims[i]
		if others[claim.PodUID] != claim {
			continue
		}
		delete(others, claim.PodUID)
		if FindConflict(claim.Holds(), others, capacity) == nil {
			grantable = append(grantable, *claim)
		}
		others[claim.PodUID] = claim
	}
	return grantable
}
