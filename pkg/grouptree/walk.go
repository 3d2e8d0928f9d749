// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import "slices"

// walk is the canonical walk: it places each placeholder on the best instance in the current state,
// and does not move it later. It returns the pod's score, or false when a placeholder fits no
// instance.
func (p *Placer) walk() (float64, bool) {
	score := p.total()
	for k := range p.req.containers {
		ctr := &p.req.containers[k]
		p.enter(ctr)
		if !p.fill(ctr.groupLo, 0, 0) {
			return 0, false
		}
		if p.running {
			score = p.total()
		}
		p.leave(ctr)
	}
	return score, true
}

// fill puts group g on instance x. If it returns false, the caller undoes its changes.
func (p *Placer) fill(g, x int32, depth int) bool {
	grp := &p.req.groups[g]
	mark := len(p.trail)
	p.exact.steps += 1 + stepsPerRequest*int(grp.itemHi-grp.itemLo)
	for i := grp.itemLo; i < grp.itemHi; i++ {
		r := p.find(i, x)
		if r < 0 || !p.assign(i, r, p.req.items[i].quantity) {
			return false
		}
	}
	if grp.end == g+1 {
		return true
	}
	for child := g + 1; child < grp.end; child = p.req.groups[child].end {
		if !p.choose(child, x, depth) {
			return false
		}
	}
	return p.running || p.recount(grp, mark)
}

// choose puts group g on the best instance of its level below x, if it fits one. It prefers
// instances that the pod uses already.
func (p *Placer) choose(g, x int32, depth int) bool {
	first, last := p.places(g, x)
	return p.touched[x] > 0 && p.chooseAmong(g, first, last, depth, true) || p.chooseAmong(g, first, last, depth, false)
}

// chooseAmong puts group g on the best of those instances of a range that the pod uses, or of those
// that it does not use. An instance equivalent to an earlier one has the same score, bit for bit:
// chooseAmong does not try it again.
func (p *Placer) chooseAmong(g, first, last int32, depth int, inUse bool) bool {
	grp := &p.req.groups[g]
	mark := len(p.trail)
	best, bestScore := int32(-1), 0.0
	model, tried := int32(-1), int32(-1) // the instance whose assignment is saved, and the one tried last
	p.exact.steps += int(last - first)
	for c := first; c < last; c++ {
		if p.exhausted() {
			return false
		}
		if p.touched[c] > 0 != inUse || grp.different && p.isTaken(g, c) {
			continue
		}
		if p.equivalent(c, model) {
			best = c // the same score, and the later name
			continue
		}
		if p.equivalent(c, tried) {
			continue
		}
		tried = c
		if p.fill(g, c, depth+1) {
			inst := &p.tree.instances[c]
			p.exact.steps += int(inst.hi - inst.lo)
			if score := p.mean(inst.lo, inst.hi); best < 0 || score >= bestScore {
				best, bestScore, model = c, score, c
				p.save(grp, depth)
			}
		}
		p.undo(mark)
	}
	return best >= 0 && p.restore(grp, depth, p.tree.instances[best].lo-p.tree.instances[model].lo, mark)
}

// resourcesPerStep is how many resources of two instances one step compares.
const resourcesPerStep = 8

// equivalent reports whether two instances of one level have the same structure and the same used
// quantities, and this pod uses neither.
func (p *Placer) equivalent(x, y int32) bool {
	if y < 0 || p.req.pinned || p.touched[x] != 0 || p.touched[y] != 0 {
		return false
	}
	a, b := &p.tree.instances[x], &p.tree.instances[y]
	if a.class != b.class {
		return false
	}
	p.exact.steps += int(a.hi-a.lo) / resourcesPerStep
	return slices.Equal(p.used[a.lo:a.hi], p.used[b.lo:b.hi])
}

// save keeps the assignment of a group while the walk tries other instances.
func (p *Placer) save(grp *group, depth int) {
	for len(p.saved) <= depth {
		p.saved = append(p.saved, nil)
	}
	p.saved[depth] = append(p.saved[depth][:0], p.assigned[grp.itemLo:grp.itemEnd]...)
}

// restore puts a group back where save found it, or on an equivalent instance, shift resources
// further on. It returns true, as the group has fitted there before.
func (p *Placer) restore(grp *group, depth int, shift int32, mark int) bool {
	p.exact.steps += stepsPerRequest * len(p.saved[depth])
	for k, r := range p.saved[depth] {
		i, r := grp.itemLo+int32(k), r+shift
		if p.running {
			p.assign(i, r, 0)
		} else {
			p.touch(i, r)
		}
	}
	return p.running || p.recount(grp, mark)
}

// recount computes the use of a group of an init container as a whole, from the state at the start
// of the group: the container shares the quantities that the pod uses at other times, but its own
// requests add up. It replaces the results of the groups below, and returns false if that does not
// fit.
func (p *Placer) recount(grp *group, mark int) bool {
	p.exact.steps += len(p.trail) - mark + 2*int(grp.itemEnd-grp.itemLo)
	for k := len(p.trail) - 1; k >= mark; k-- {
		c := &p.trail[k]
		p.used[c.resource], p.pod[c.resource] = c.used, c.pod
	}
	for i := grp.itemLo; i < grp.itemEnd; i++ {
		if r := p.assigned[i]; p.counts(i, r) {
			p.sum[r] += p.req.items[i].quantity
		}
	}
	fits := true
	for i := grp.itemLo; i < grp.itemEnd; i++ {
		r := p.assigned[i]
		more := int64(0)
		if p.counts(i, r) {
			more = p.addedUse(r, 0, p.sum[r])
			p.sum[r] = 0
			fits = fits && more <= p.tree.allocatable[r]-p.used[r]
		}
		p.remember(r, false)
		if fits {
			p.set(i, r, more)
		}
	}
	return fits
}
