// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/ptr"
)

// published are the devices of all ResourceSlices, by their nodes. All slices count, also those of
// a pool that is not complete: claims may have their devices.
type published struct {
	known map[*resourceapi.ResourceSlice]struct{}
	// places has what was read of the slices of a node; that of "" has the slices that do not
	// belong to one node.
	places map[string]*place
}

// place is what slices publish in one place. It is immutable.
type place struct {
	slices     int
	devices    map[structured.DeviceID][]identity
	byIdentity map[identity][]structured.DeviceID
}

// allocations lists the devices that claims have.
type allocations interface {
	// allocated returns them, or nil if they cannot be read now: then each device may be one.
	allocated() sets.Set[structured.DeviceID]
}

// update brings the devices up to date with all slices of the cluster, and returns whether anything
// has changed.
func (p *published) update(all []*resourceapi.ResourceSlice, claims allocations) (changed bool) {
	if p.isKnown(all) && len(all) == len(p.known) {
		return false
	}
	byPlace := map[string][]*resourceapi.ResourceSlice{}
	for _, slice := range all {
		name := ptr.Deref(slice.Spec.NodeName, "")
		byPlace[name] = append(byPlace[name], slice)
	}
	next := make(map[string]*place, len(byPlace))
	var allocated *sets.Set[structured.DeviceID]
	for name, slices := range byPlace {
		before := p.places[name]
		if before != nil && before.slices == len(slices) && p.isKnown(slices) {
			next[name] = before
			continue
		}
		next[name] = newPlace(name, slices).remember(before, claims, &allocated)
	}
	for name, before := range p.places {
		if _, there := byPlace[name]; !there {
			if left := newPlace(name, nil).remember(before, claims, &allocated); len(left.devices) > 0 {
				next[name] = left
			}
		}
	}
	p.places, p.known = next, make(map[*resourceapi.ResourceSlice]struct{}, len(all))
	for _, slice := range all {
		p.known[slice] = struct{}{}
	}
	return true
}

// at returns what is published in a place, nil if none of that is identified.
func (p *published) at(name string) *place {
	if found := p.places[name]; found != nil && len(found.byIdentity) > 0 {
		return found
	}
	return nil
}

// isKnown reports whether all these slices have been read.
func (p *published) isKnown(slices []*resourceapi.ResourceSlice) bool {
	for _, slice := range slices {
		if _, known := p.known[slice]; !known {
			return false
		}
	}
	return true
}

func newPlace(name string, slices []*resourceapi.ResourceSlice) *place {
	p := &place{
		slices: len(slices), devices: map[structured.DeviceID][]identity{},
		byIdentity: map[identity][]structured.DeviceID{},
	}
	for _, slice := range slices {
		for i := range slice.Spec.Devices {
			device := &slice.Spec.Devices[i]
			id := structured.MakeDeviceID(slice.Spec.Driver, slice.Spec.Pool.Name, device.Name)
			var identities []identity
			for _, found := range ofPublished(slice.Spec.Driver, device) {
				if name != "" || found.isGlobal() {
					identities = append(identities, found)
				}
			}
			p.add(id, identities)
		}
	}
	return p
}

func (p *place) add(id structured.DeviceID, identities []identity) {
	p.devices[id] = append(p.devices[id], identities...)
	for _, found := range identities {
		p.byIdentity[found] = append(p.byIdentity[found], id)
	}
}

// remember adds the devices that were published before, and which claims have.
func (p *place) remember(before *place, claims allocations, allocated **sets.Set[structured.DeviceID]) *place {
	if before == nil {
		return p
	}
	for id, identities := range before.devices {
		if _, there := p.devices[id]; there || len(identities) == 0 {
			continue
		}
		if *allocated == nil {
			*allocated = ptr.To(claims.allocated())
		}
		if **allocated == nil || (**allocated).Has(id) {
			p.add(id, identities)
		}
	}
	return p
}
