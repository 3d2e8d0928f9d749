// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletplugin

import (
	"cmp"
	"math"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// exhausted reports whether no inspections are left.
func (a *podAllocation) exhausted() bool { return a.inspections >= a.limit }

// checkGroups returns an error if the node cannot serve one group, or all groups of one likeness,
// even without the other groups.
func (a *podAllocation) checkGroups(open []*group) error {
	for _, g := range open {
		if len(a.candidates(g)) == 0 {
			return errNoSet(g)
		}
		if a.exhausted() {
			return errSearchStopped
		}
	}
	alike := map[likeness]int{}
	for _, g := range open {
		alike[g.likeness()]++
	}
	for _, g := range open {
		like := g.likeness()
		if groups := alike[like]; groups > 0 && a.capacity(g) < groups {
			return errNotTogether(open)
		}
		delete(alike, like)
	}
	return nil
}

// capacity returns how many groups like this one fit if there are no others.
func (a *podAllocation) capacity(g *group) int {
	groups := 0
	for _, set := range a.pool {
		if !g.canUse(set) {
			continue
		}
		here := math.MaxInt
		for resource, n := range g.open {
			available, _ := a.count(set, resource, g.owner)
			here = min(here, available/n)
		}
		groups += here
	}
	return groups
}

// canUse reports whether the group may use a NUMA set: the one that it names, and the one of its
// devices so far. Devices without a reported NUMA node are not known to be together.
func (g *group) canUse(set *numaSet) bool {
	if g.numa() == "" && len(g.items) > 1 && set.name == kubeletdevice.Unknown {
		return false
	}
	return (g.numa() == "" || g.numa() == set.name) && (g.set == nil || g.set == set)
}

// candidates returns the NUMA sets that can serve a group now, the best first: those where the pod
// needs the fewest devices beyond those that it holds, then those with the fewest left over.
func (a *podAllocation) candidates(g *group) []*numaSet {
	type candidate struct {
		*numaSet
		added, left int
	}
	var found []candidate
	for _, set := range a.pool {
		if !g.canUse(set) {
			continue
		}
		c, enough := candidate{numaSet: set}, true
		for resource, n := range g.open {
			available, shared := a.count(set, resource, g.owner)
			enough = enough && available >= n
			c.left += available - n
			c.added += max(0, n-shared)
		}
		if enough {
			found = append(found, c)
		}
	}
	slices.SortStableFunc(found, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.added, b.added), cmp.Compare(a.left, b.left))
	})
	sets := make([]*numaSet, len(found))
	for i, c := range found {
		sets[i] = c.numaSet
	}
	return sets
}

// assignGroups assigns the devices that groups request without an ID.
func (a *podAllocation) assignGroups(open []*group) error {
	// The largest groups have the fewest alternatives.
	slices.SortStableFunc(open, func(a, b *group) int { return cmp.Compare(len(b.items), len(a.items)) })
	previous, latest := make([]int, len(open)), map[likeness]int{}
	for i, g := range open {
		previous[i] = -1
		like := g.likeness()
		if last, ok := latest[like]; ok {
			previous[i] = last
		}
		latest[like] = i
	}
	if !a.searchGroups(open, previous, make([]int, 0, len(open))) {
		return a.orSearchStopped(errNotTogether(open))
	}
	return nil
}

// orSearchStopped returns why, or the error of a search that has reached its limit.
func (a *podAllocation) orSearchStopped(why error) error {
	if a.steps == stepLimit || a.exhausted() {
		return errSearchStopped
	}
	return why
}

// searchGroups assigns the devices of all groups after the first ones, which are placed in the sets
// with these indices. previous has for each group the index of the last group of its likeness
// before it, or -1. It returns false, and assigns nothing, if it finds no way within its steps.
func (a *podAllocation) searchGroups(groups []*group, previous, placed []int) bool {
	if len(placed) == len(groups) {
		return true
	}
	g, first := groups[len(placed)], 0
	if like := previous[len(placed)]; like >= 0 { // exchanging the two changes nothing
		first = placed[like] // so the later one gets no earlier set
	}
	for _, set := range a.candidates(g) {
		index := slices.Index(a.pool, set)
		if index < first {
			continue
		}
		if a.steps == stepLimit || a.exhausted() {
			return false
		}
		a.steps++
		assigned := len(g.owner.assigned)
		for _, it := range g.items {
			if it.id == "" {
				g.owner.assign(it.request, set, a.first(set, it.resource, g.owner))
			}
		}
		if a.mayGoOn(g) && a.searchGroups(groups, previous, append(placed, index)) {
			return true
		}
		g.owner.release(assigned)
	}
	return false
}

// need is one device that a container requests without an ID.
type need struct {
	owner    *container
	resource types.ResourceName
	request  types.ResourceName // empty for a device that is only counted
	group    *group             // nil for a device that is only counted
}

// assignBySearch tries all ways to serve the groups and the counts of sidecars. Enough devices
// remain for the counts of the other containers in any case, as checkTotals has found enough. why
// is the error if there is no way.
func (a *podAllocation) assignBySearch(open []*group, why error) error {
	var needs []need
	for _, g := range open {
		for _, it := range g.items {
			if it.id == "" {
				needs = append(needs, need{g.owner, it.resource, it.request, g})
			}
		}
	}
	for _, c := range a.containers {
		if c.kind != grouptree.Sidecar {
			continue
		}
		for _, resource := range sortedKeys(c.counts) {
			needs = append(needs, slices.Repeat([]need{{owner: c, resource: resource}}, c.counts[resource])...)
		}
	}
	a.steps = 0
	if !a.searchDevices(needs, 0) {
		return a.orSearchStopped(why)
	}
	for _, c := range a.containers {
		if c.kind != grouptree.Sidecar {
			if err := a.assignCounts(c); err != nil {
				return err
			}
			continue
		}
		for i, counted := range c.assigned {
			if counted.request == "" {
				c.assigned[i].request = counted.device.request(c.newPlaceholder(counted.set), 0)
			}
		}
	}
	return nil
}

// searchDevices assigns a device to each need; the first need gets a device of the sets from the
// index start on. It returns false, and assigns nothing, if it finds no way within its steps.
func (a *podAllocation) searchDevices(needs []need, start int) bool {
	if len(needs) == 0 {
		return true
	}
	n, rest := needs[0], needs[1:]
	for index, set := range a.pool {
		if index < start || n.group != nil && !n.group.canUse(set) {
			continue
		}
		next := 0
		if n.group == nil && len(rest) > 0 && rest[0] == n {
			next = index // the order of devices that are counted together does not matter
		}
		available, _ := a.available(set, n.resource, n.owner)
		for _, d := range a.distinct(available) {
			if a.steps == stepLimit || a.exhausted() {
				return false
			}
			a.steps++
			if a.searchWith(n, set, d, rest, next) {
				return true
			}
		}
	}
	return false
}

// searchWith is searchDevices for the rest of the needs once the first one is assigned a device.
func (a *podAllocation) searchWith(n need, set *numaSet, d *device, rest []need, start int) bool {
	assigned := len(n.owner.assigned)
	n.owner.assign(n.request, set, d)
	if n.group != nil {
		previous := n.group.set
		n.group.set = set
		defer func() { n.group.set = previous }()
	}
	if !(a.bounded && a.exceeds(n.resource)) && a.searchDevices(rest, start) {
		return true
	}
	n.owner.release(assigned)
	return false
}

// distinct returns one device for each set of holders: devices with the same holders are
// interchangeable.
func (a *podAllocation) distinct(devices []*device) []*device {
	var found []*device
	for _, d := range devices {
		a.inspections += len(found) * (1 + len(d.holders))
		same := func(other *device) bool {
			return len(d.holders) == len(other.holders) &&
				!slices.ContainsFunc(d.holders, func(c *container) bool { return !slices.Contains(other.holders, c) })
		}
		if !slices.ContainsFunc(found, same) {
			found = append(found, d)
		}
	}
	return found
}
