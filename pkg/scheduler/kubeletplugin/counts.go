// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletplugin

import (
	"cmp"
	"maps"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// offer is the devices of one NUMA set for the resources that a container counts.
type offer struct {
	set     *numaSet
	devices map[types.ResourceName][]*device
}

// covers returns how many of the counted devices the offer has.
func (o offer) covers(counts map[types.ResourceName]int) int {
	n := 0
	for resource, count := range counts {
		n += min(count, len(o.devices[resource]))
	}
	return n
}

// assignCounts assigns the devices that a container only counts: first those that other containers
// of the pod hold at other times, so that the pod holds no more than necessary.
func (a *podAllocation) assignCounts(c *container) error {
	shared := map[types.ResourceName]int{}
	for resource, n := range c.counts {
		for _, set := range a.pool {
			_, here := a.count(set, resource, c)
			shared[resource] += here
		}
		shared[resource] = min(shared[resource], n)
	}
	unshared := map[types.ResourceName]int{}
	for resource, n := range c.counts {
		unshared[resource] = n - shared[resource]
	}
	held := func(devices []*device, shared int) []*device { return devices[:shared] }
	unheld := func(devices []*device, shared int) []*device { return devices[shared:] }
	if !a.assignFrom(c, shared, held) || !a.assignFrom(c, unshared, unheld) {
		return errLeftOver(c)
	}
	return nil
}

// assignFrom assigns devices from a part of the available ones of each NUMA set: the first ones by
// comparePositions that suffice. It returns false when there are too few.
func (a *podAllocation) assignFrom(
	c *container, counts map[types.ResourceName]int, part func(available []*device, shared int) []*device,
) bool {
	requested := 0
	for _, n := range counts {
		requested += n
	}
	if requested == 0 && len(c.assigned) == 0 { // usually no device can be shared
		return true
	}
	offerOf := func(set *numaSet) offer {
		o := offer{set, map[types.ResourceName][]*device{}}
		for resource := range counts {
			o.devices[resource] = part(a.available(set, resource, c))
		}
		return o
	}
	var own, others []offer
	sets := c.sets()
	for _, set := range sets {
		own = append(own, offerOf(set))
	}
	for _, set := range a.pool {
		if o := offerOf(set); !slices.Contains(sets, set) && o.covers(counts) > 0 {
			others = append(others, o)
		}
	}
	for resource, n := range counts {
		spreadOver(slices.Concat(own, others), resource, n)
	}
	offers, ok := fewestSets(counts, own, others)
	if !ok {
		return false
	}
	missing := maps.Clone(counts)
	for _, o := range offers {
		placeholder := c.newPlaceholder(o.set)
		for _, resource := range sortedKeys(missing) {
			devices := o.devices[resource]
			devices = devices[:min(len(devices), missing[resource])]
			for i, d := range devices {
				c.assign(d.request(placeholder, i), o.set, d)
			}
			missing[resource] -= len(devices)
		}
	}
	return true
}

// spreadOver reduces the devices of a resource in the offers to the first n by comparePositions,
// and those that compare equal to the last of these.
func spreadOver(offers []offer, resource types.ResourceName, n int) {
	var all []*device
	for _, o := range offers {
		all = append(all, o.devices[resource]...)
	}
	if n == 0 || n > len(all) {
		return
	}
	slices.SortFunc(all, comparePositions)
	isLater := func(d *device) bool { return comparePositions(d, all[n-1]) > 0 }
	if !isLater(all[len(all)-1]) {
		return
	}
	for _, o := range offers {
		o.devices[resource] = slices.DeleteFunc(o.devices[resource], isLater)
	}
}

// fewestSets returns a container's own offers and the fewest others that cover the counts together
// with them; of equally few, those with the fewest devices left over. The offer that covers most
// comes first. It returns false when all offers together do not cover the counts. After stepLimit
// steps it takes the best combination so far, or all offers.
func fewestSets(counts map[types.ResourceName]int, own, others []offer) ([]offer, bool) {
	s := setSearch{counts: counts, chosen: slices.Clone(own), left: -1}
	for n := 0; n <= len(others) && s.left < 0 && s.steps < stepLimit; n++ {
		s.choose(others, n)
	}
	if s.left < 0 {
		s.best = append(own, others...)
		s.left = leftOver(counts, s.best)
	}
	slices.SortStableFunc(s.best, func(a, b offer) int { return cmp.Compare(b.covers(counts), a.covers(counts)) })
	return s.best, s.left >= 0
}

// setSearch is a search through combinations of offers.
type setSearch struct {
	counts map[types.ResourceName]int
	chosen []offer
	steps  int
	best   []offer
	left   int // devices that best leaves over; negative until there is a best
}

// choose tries all combinations of the chosen offers and n others.
func (s *setSearch) choose(others []offer, n int) {
	s.steps++
	if n == 0 {
		if left := leftOver(s.counts, s.chosen); left >= 0 && (s.left < 0 || left < s.left) {
			s.best, s.left = slices.Clone(s.chosen), left
		}
		return
	}
	for i := 0; i+n <= len(others) && s.steps < stepLimit; i++ {
		s.chosen = append(s.chosen, others[i])
		s.choose(others[i+1:], n-1)
		s.chosen = s.chosen[:len(s.chosen)-1]
	}
}

// leftOver returns how many devices of the counted resources offers have beyond the counts, or -1
// when they have too few of one.
func leftOver(counts map[types.ResourceName]int, offers []offer) int {
	left := 0
	for resource, n := range counts {
		for _, o := range offers {
			n -= len(o.devices[resource])
		}
		if n > 0 {
			return -1
		}
		left -= n
	}
	return left
}
