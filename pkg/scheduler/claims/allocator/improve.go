// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"cmp"
	"context"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/scheduler/claims/pool"
)

// Improve returns the best allocation on a node that has the same alternatives as the one that
// Allocate returns, or the best that it finds in a bounded number of steps. Errors are those of
// Allocate.
func (r *Request) Improve(ctx context.Context, node *pool.Node, allocated Allocated) (*Allocation, error) {
	s, err := r.search(ctx, node, allocated)
	if err != nil {
		return nil, err
	}
	found, err := s.first()
	if err != nil || len(r.options.Levels) == 0 {
		return found, err
	}
	return s.improve(found), nil
}

// CostOf returns the cost of an allocation on a node.
func (r *Request) CostOf(ctx context.Context, node *pool.Node, allocated Allocated, of *Allocation) (Cost, error) {
	s, err := r.search(ctx, node, allocated)
	if err != nil {
		return Cost{}, err
	}
	return s.topologyOf().cost(r, of.chosen), nil
}

// improvement is a search for the best allocation with given alternatives.
type improvement struct {
	*search
	topology *topology
	// kinds are those of devices that may take each other's place without a change of the cost.
	kinds []int32
	// excluded are devices that were tried for a slot, as part of a set of which all sets were
	// tried.
	excluded []int
	within   int
	across   int
	steps    int

	best *Allocation
	cost Cost
}

// improve returns the best allocation with the alternatives of one.
func (s *search) improve(from *Allocation) *Allocation {
	t := s.topologyOf()
	f := &improvement{
		search: s, topology: t, kinds: s.sameKind(append(slices.Clone(t.groups), t.owners...)),
		excluded: make([]int, len(s.node.Devices)), best: from, cost: t.cost(s.request, from.chosen),
	}
	clear(s.used)
	clear(s.counts)
	for i := range s.tracked {
		s.tracked[i] = nil
	}
	for i := range s.chosen {
		s.chosen[i] = choice{alternative: from.chosen[i].alternative}
	}
	f.fill(0)
	return f.best
}

// fill serves slot i and those after it.
func (f *improvement) fill(i int) {
	if i == len(f.request.slots) {
		cost := Cost{f.within, f.across, f.topology.fragments(f.request, f.chosen)}
		if cost.Compare(f.cost) < 0 {
			f.best, f.cost = f.allocation(), cost
		}
		return
	}
	f.pick(i, f.needs(i, f.chosen[i].alternative))
}

// candidate is a device that may be picked next.
type candidate struct {
	device         *pool.Device
	within, across int
	order          int
}

// pick picks so many more devices for slot i.
func (f *improvement) pick(i, needed int) {
	if needed == 0 {
		// Those that were excluded for this slot are free for the others.
		excluded := f.excluded
		f.excluded = make([]int, len(excluded))
		f.fill(i + 1)
		f.excluded = excluded
		return
	}
	candidates, there := f.next(i)
	if there < needed {
		return
	}
	var tried []*pool.Device
	for _, c := range candidates {
		device := c.device
		if f.steps++; f.steps > improveSteps {
			break
		}
		f.within, f.across = f.within+c.within, f.across+c.across
		if f.mayWin() {
			f.take(i, device)
			f.pick(i, needed-1)
			f.release(i, device)
		}
		f.within, f.across = f.within-c.within, f.across-c.across
		f.excluded[device.Index]++
		tried = append(tried, device)
	}
	for _, device := range tried {
		f.excluded[device.Index]--
	}
}

// mayWin reports whether the devices that were picked so far may be part of a better allocation:
// distances only grow.
func (f *improvement) mayWin() bool {
	return cmp.Or(cmp.Compare(f.within, f.cost.Within), cmp.Compare(f.across, f.cost.Across)) <= 0
}

// next returns the devices that may be picked next for slot i, of each kind one, the most promising
// first, and how many there are of all kinds.
func (f *improvement) next(i int) (all []candidate, there int) {
	a := &f.request.slots[i].alternatives[f.chosen[i].alternative]
	seen := map[[2]uint64]bool{}
	for order, device := range f.of[i][f.chosen[i].alternative].devices {
		if f.excluded[device.Index] > 0 || !f.usable(i, device) || !f.allowed(a, device) {
			continue
		}
		there++
		kind := [2]uint64{uint64(f.kinds[device.Index]), f.used[device.Index]}
		if seen[kind] {
			continue
		}
		seen[kind] = true
		within, across := f.topology.added(f.chosen, i, device)
		all = append(all, candidate{device, within, across, order})
	}
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.within, b.within), cmp.Compare(a.across, b.across),
			f.compareGroups(a.device, b.device), cmp.Compare(a.order, b.order))
	})
	return all, there
}

// compareGroups prefers the device in the group with fewer free devices.
func (f *improvement) compareGroups(a, b *pool.Device) int {
	for level, owners := range f.topology.owners {
		free := func(device *pool.Device) int {
			if group := owners[device.Index]; group >= 0 {
				return f.topology.free[level][group]
			}
			return 0
		}
		if order := cmp.Compare(free(a), free(b)); order != 0 {
			return order
		}
	}
	return 0
}
