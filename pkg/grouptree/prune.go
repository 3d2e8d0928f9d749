// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import "slices"

// slack is more than the rounding errors of a score and less than any difference that counts.
const slack = 1e-11

// bound computes what each group can add to the score at most.
func (p *Placer) bound() {
	s := &p.exact
	n := len(p.req.groups)
	s.remaining = append(s.remaining[:0], make([]float64, n+1)...)
	for k := range p.req.running {
		at := &p.req.containers[k]
		for g := at.groupLo; g < at.groupHi; g++ {
			for i := p.req.groups[g].itemLo; i < p.req.groups[g].itemHi && !p.exhausted(); i++ {
				s.remaining[g] += p.gain(i)
			}
		}
	}
	for g := n - 1; g >= 0; g-- {
		s.remaining[g] += s.remaining[g+1]
	}
	s.ceiling = rank(p.ceiling(0))
}

// gain returns what request i can add to the sum of scores at most, whichever resource serves it.
func (p *Placer) gain(i int32) float64 {
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

// ceiling returns a score that no placement exceeds which goes on from here with group g.
func (p *Placer) ceiling(g int32) float64 {
	if p.req.rescored { // a container's own scorer may raise any score
		return 1 + slack
	}
	return (p.exact.sum+p.exact.remaining[g])/float64(max(1, len(p.score))) + slack
}

// enough reports whether instance x has as much free, all in all, as a group needs.
func (p *Placer) enough(at *group, x int32) bool {
	in := &p.tree.instances[x]
	for _, need := range at.needs {
		if p.exhausted() {
			return false
		}
		missing, r := need.total, in.lo
		for ; r < in.hi && missing > 0; r++ {
			if p.tree.typ[r] != p.types[need.typ] {
				continue
			}
			if p.tree.mode[r] == enum {
				missing = 0
			} else {
				missing -= min(missing, p.free(r))
			}
		}
		p.exact.steps += int(r - in.lo)
		if missing > 0 {
			return false
		}
	}
	return true
}

// free returns how much of resource r the container that is being placed can still be given.
func (p *Placer) free(r int32) int64 {
	free := p.tree.allocatable[r] - p.used[r]
	if !p.running {
		free += p.pod[r] - p.side[r] - p.sum[r]
	}
	return max(0, free)
}

// redundant reports whether instance x is as good as one of those that were tried at the same
// point.
func (p *Placer) redundant(x int32, tried []int32) bool {
	if p.req.pinned { // a request that is still to come may be bound to one of them
		return false
	}
	p.exact.steps += len(tried)
	return slices.ContainsFunc(tried, func(y int32) bool { return p.interchangeable(x, y) })
}

// interchangeable reports whether two instances of one level are built alike and in the same state.
func (p *Placer) interchangeable(x, y int32) bool {
	a, b := &p.tree.instances[x], &p.tree.instances[y]
	if a.class != b.class {
		return false
	}
	p.exact.steps += int(a.hi - a.lo)
	for k := range a.hi - a.lo {
		r, q := a.lo+k, b.lo+k
		if p.used[r] != p.used[q] || p.pod[r] != p.pod[q] || p.bits[r] != p.bits[q] ||
			p.side[r] != p.side[q] || p.sum[r] != p.sum[q] || p.score[r] != p.score[q] {
			return false
		}
	}
	return true
}
