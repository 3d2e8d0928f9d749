// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import "slices"

// slack is more than the rounding errors of a score and less than any difference that counts.
const slack = 1e-11

// bound computes how much each group can add to the score at most.
func (p *Placer) bound() {
	s := &p.exact
	n := len(p.req.groups)
	s.remaining = append(s.remaining[:0], make([]float64, n+1)...)
	for k := range p.req.running {
		ctr := &p.req.containers[k]
		for g := ctr.groupLo; g < ctr.groupHi; g++ {
			for i := p.req.groups[g].itemLo; i < p.req.groups[g].itemHi && !p.exhausted(); i++ {
				s.remaining[g] += p.maxGain(i)
			}
		}
	}
	for g := n - 1; g >= 0; g-- {
		s.remaining[g] += s.remaining[g+1]
	}
	s.ceiling = rank(p.ceiling(0))
}

// maxGain returns how much request i can add to the sum of scores at most, with any resource.
func (p *Placer) maxGain(i int32) float64 {
	it := &p.req.items[i]
	most := 0.0
	p.exact.steps += len(p.tree.typ)
	for r, typ := range p.tree.typ {
		allocatable := p.tree.allocatable[r]
		if typ != p.types[it.typ] || allocatable == 0 {
			continue
		}
		if p.tree.mode[r] == enum {
			most = max(most, rate(enum, allocatable, 0, it.quantity))
		} else if it.quantity <= allocatable-p.used[r] {
			most = max(most, float64(it.quantity)/float64(allocatable))
		}
	}
	return most
}

// ceiling returns an upper bound of the scores of all placements that continue with group g.
func (p *Placer) ceiling(g int32) float64 {
	if p.req.rescored { // a container's own scorer may raise any score
		return 1 + slack
	}
	return (p.exact.sum+p.exact.remaining[g])/float64(max(1, p.scoredIn(0, int32(len(p.score))))) + slack
}

// hasRoom reports whether instance x has as much free in total as a group needs.
func (p *Placer) hasRoom(grp *group, x int32) bool {
	inst := &p.tree.instances[x]
	for _, need := range grp.needs {
		if p.exhausted() {
			return false
		}
		missing, r := need.total, inst.lo
		for ; r < inst.hi && missing > 0; r++ {
			if p.tree.typ[r] != p.types[need.typ] {
				continue
			}
			if p.tree.mode[r] == enum {
				missing = 0
			} else {
				missing -= min(missing, p.free(r))
			}
		}
		p.exact.steps += int(r - inst.lo)
		if missing > 0 {
			return false
		}
	}
	return true
}

// free returns how much of resource r the current container can still get.
func (p *Placer) free(r int32) int64 {
	free := p.tree.allocatable[r] - p.used[r]
	if !p.running {
		free += p.pod[r] - p.side[r] - p.sum[r]
	}
	return max(0, free)
}

// redundant reports whether the search has tried an interchangeable instance at the same point.
func (p *Placer) redundant(x int32, tried []int32) bool {
	if p.req.pinned { // a later request may be pinned to one of them
		return false
	}
	p.exact.steps += len(tried)
	return slices.ContainsFunc(tried, func(y int32) bool { return p.interchangeable(x, y) })
}

// interchangeable reports whether two instances of one level have the same structure and state.
func (p *Placer) interchangeable(x, y int32) bool {
	a, b := &p.tree.instances[x], &p.tree.instances[y]
	if a.class != b.class {
		return false
	}
	p.exact.steps += int(a.hi - a.lo)
	for k := range a.hi - a.lo {
		r, q := a.lo+k, b.lo+k
		if p.used[r] != p.used[q] || p.pod[r] != p.pod[q] || p.bits[r] != p.bits[q] || p.score[r] != p.score[q] {
			return false
		}
		if p.marked && (p.side[r] != p.side[q] || p.sidecar[r] != p.sidecar[q] || p.sum[r] != p.sum[q]) {
			return false
		}
	}
	return true
}
