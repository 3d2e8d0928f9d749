// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import "github.com/kubedevice/kubedevice/pkg/sdk/types"

// Grantable returns those of the claims that Grant would grant now next to granted, in their order.
// It leaves out the claims of pods that were granted something before, and all claims to one device
// if there are several: none of these pods holds it yet.
func Grantable(claims, granted []Allocation, capacity Capacity) []Allocation {
	if len(claims) == 0 {
		return nil
	}
	others := make(map[string]*Allocation, len(claims)+len(granted))
	for i := range claims {
		others[claims[i].PodUID] = &claims[i]
	}
	for i := range granted {
		others[granted[i].PodUID] = &granted[i]
	}
	holds := make(map[*Allocation]types.ResourceList, len(others))
	for _, other := range others {
		holds[other] = other.Holds()
	}
	names := newRequestedNames()
	for i := range claims {
		names.add(holds[&claims[i]])
	}
	used := newUsage(names)
	for other, list := range holds {
		used.add(other, list, capacity)
	}
	var grantable []Allocation
	for i := range claims {
		claim := &claims[i]
		if others[claim.PodUID] == claim && used.conflict(holds[claim], claim, capacity) == nil {
			grantable = append(grantable, *claim)
		}
	}
	return grantable
}
