// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import "slices"

// walk is the canonical walk: it places each placeholder on the best instance as things stand, for
// good. It returns the pod's score, or false when some placeholder fits nowhere.
func (p *Placer) walk() (float64, bool) {
	score := mean(p.score)
	for k := range p.req.containers {
		at := &p.req.containers[k]
		p.enter(at)
		if !p.fill(at.groupLo, 0, 0) {
			return 0, false
		}
		if p.running {
			score = mean(p.score)
		}
		p.leave(at)
	}
	return score, true
}

// fill puts group g on instance x. When it returns false, what it changed must be undone.
func (p *Placer) fill(g, x int32, depth int) bool {
	at := &p.req.groups[g]
	mark := len(p.trail)
	p.exact.steps += 1 + stepsPerRequest*int(at.itemHi-at.itemLo)
	for i := at.itemLo; i < at.itemHi; i++ {
		r := p.find(i, x)
		if r < 0 || !p.assign(i, r, p.req.items[i].quantity) {
			return false
		}
	}
	if at.end == g+1 {
		return true
	}
	for child := g + 1; child < at.end; child = p.req.groups[child].end {
		if !p.choose(child, x, depth) {
			return false
		}
	}
	return p.running || p.recount(at, mark)
}

// choose puts group g on the best instance of its level below x, if it fits one: of those that the
// pod uses already, or else of the others.
func (p *Placer) choose(g, x int32, depth int) bool {
	first, last := p.places(g, x)
	return p.touched[x] > 0 && p.chooseAmong(g, first, last, depth, true) || p.chooseAmong(g, first, last, depth, false)
}

// chooseAmong puts group g on the best of those instances of a range that the pod uses, or of those
// that it does not use. An instance that looks like one tried before would score like it, bit for
// bit: it is not tried again.
func (p *Placer) chooseAmong(g, first, last int32, depth int, inUse bool) bool {
	at := &p.req.groups[g]
	mark := len(p.trail)
	best, bestScore := int32(-1), 0.0
	model, tried := int32(-1), int32(-1) // the instance whose assignment is saved, and the one tried last
	p.exact.steps += int(last - first)
	for c := first; c < last; c++ {
		if p.exhausted() {
			return false
		}
		if p.touched[c] > 0 != inUse {
			continue
		}
		if p.looksLike(c, model) {
			best = c // the same score, and the later name
			continue
		}
		if p.looksLike(c, tried) {
			continue
		}
		tried = c
		if p.fill(g, c, depth+1) {
			in := &p.tree.instances[c]
			p.exact.steps += int(in.hi - in.lo)
			if score := mean(p.score[in.lo:in.hi]); best < 0 || score >= bestScore {
				best, bestScore, model = c, score, c
				p.save(at, depth)
			}
		}
		p.undo(mark)
	}
	return best >= 0 && p.restore(at, depth, p.tree.instances[best].lo-p.tree.instances[model].lo, mark)
}

// resourcesPerStep is how many resources two instances are compared in, in the time of a step.
const resourcesPerStep = 8

// looksLike reports whether two instances of one level are built alike, have the same in use and
// are not used by this pod.
func (p *Placer) looksLike(x, y int32) bool {
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

// save keeps the assignment of a group while other instances are tried.
func (p *Placer) save(at *group, depth int) {
	for len(p.saved) <= depth {
		p.saved = append(p.saved, nil)
	}
	p.saved[depth] = append(p.saved[depth][:0], p.assigned[at.itemLo:at.itemEnd]...)
}

// restore puts a group where save found it, or on an instance that looks like that one, shift
// resources further on. It returns true, as the group has fitted there before.
func (p *Placer) restore(at *group, depth int, shift int32, mark int) bool {
	p.exact.steps += stepsPerRequest * len(p.saved[depth])
	for k, r := range p.saved[depth] {
		i, r := at.itemLo+int32(k), r+shift
		if p.running {
			p.assign(i, r, 0)
		} else {
			p.touch(i, r)
		}
	}
	return p.running || p.recount(at, mark)
}

// recount computes what a group of an init container uses as a whole, from the state that the trail
// had when the group was entered: the container can share what the pod uses at other times, but
// each of its own requests comes on top of the others. It replaces what the groups below computed,
// and returns false when that does not fit.
func (p *Placer) recount(at *group, mark int) bool {
	p.exact.steps += len(p.trail) - mark + 2*int(at.itemEnd-at.itemLo)
	for k := len(p.trail) - 1; k >= mark; k-- {
		c := &p.trail[k]
		p.used[c.resource], p.pod[c.resource] = c.used, c.pod
	}
	for i := at.itemLo; i < at.itemEnd; i++ {
		if r := p.assigned[i]; p.counts(i, r) {
			p.sum[r] += p.req.items[i].quantity
		}
	}
	fits := true
	for i := at.itemLo; i < at.itemEnd; i++ {
		r := p.assigned[i]
		more := int64(0)
		if p.counts(i, r) {
			more = p.growth(r, 0, p.sum[r])
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
