// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import "slices"

// stepsPerRequest is the cost of assigning a resource to a request and undoing that.
const stepsPerRequest = 4

// searchAll is the exact search. The placer is in the state that reset left.
func (p *Placer) searchAll() *Placement {
	s := &p.exact
	*s = search{
		steps: s.steps, limitHit: s.limitHit, timedOut: s.timedOut,
		position: s.position, tried: s.tried[:0], remaining: s.remaining, assigned: s.assigned,
	}
	s.position = zeroed(s.position, len(p.req.groups))
	clear(p.side)
	clear(p.sum)
	for _, score := range p.score {
		s.sum += score
	}
	p.bound()
	p.nextContainer(0)
	placement := &Placement{
		Fits: s.found, Exact: true, LimitHit: s.limitHit, TimedOut: s.timedOut, Steps: p.steps(),
	}
	if s.found {
		placement.Score, placement.Assigned = s.best, slices.Clone(s.assigned)
	}
	return placement
}

// nextContainer places container k and all after it. It returns true when the search can stop: for
// an init container after the first placement, for a running one when no better placement is
// possible.
func (p *Placer) nextContainer(k int) bool {
	s := &p.exact
	if p.exhausted() {
		return true
	}
	if k == p.req.running {
		if k == 0 {
			s.now = p.total()
		}
		if s.found && rank(s.now) <= rank(s.best) {
			return false
		}
	}
	stop := true
	if k == len(p.req.containers) {
		s.steps += len(p.assigned)
		s.found, s.best = true, s.now
		s.assigned = append(s.assigned[:0], p.assigned...)
	} else {
		ctr := &p.req.containers[k]
		p.enter(ctr)
		stop = p.try(k, ctr.groupLo, 0)
		if !p.running {
			p.sidecars(ctr, -1)
		}
	}
	if k == p.req.running {
		return s.limitHit || s.found && rank(s.best) >= s.ceiling
	}
	return stop
}

// nextGroup places group g of container k and all after it.
func (p *Placer) nextGroup(k int, g int32) bool {
	if g == p.req.containers[k].groupHi {
		return p.endContainer(k)
	}
	s := &p.exact
	if p.running && s.found && rank(p.ceiling(g)) <= rank(s.best) {
		return false
	}
	grp := &p.req.groups[g]
	first, last := p.places(g, s.position[grp.parent])
	if grp.twin >= 0 {
		last = min(last, s.position[grp.twin]+1)
	}
	tried := len(s.tried)
	stop := false
	for x := last - 1; x >= first && !stop; x-- {
		if p.exhausted() {
			stop = true
			break
		}
		s.steps++
		if !(grp.different && p.isTaken(g, x)) && !p.redundant(x, s.tried[tried:]) {
			s.tried = append(s.tried, x)
			stop = p.try(k, g, x)
		}
	}
	s.tried = s.tried[:tried]
	return stop
}

// try puts group g of container k on instance x and continues with the groups after it. It restores
// the state.
func (p *Placer) try(k int, g, x int32) bool {
	grp := &p.req.groups[g]
	if grp.end > g+1 && !p.hasRoom(grp, x) {
		return false
	}
	s := &p.exact
	mark, sum := len(p.trail), s.sum
	i := grp.itemLo
	for ; i < grp.itemHi; i++ {
		r := p.find(i, x)
		if r < 0 || !p.add(i, r) {
			break
		}
	}
	s.steps += stepsPerRequest * int(i-grp.itemLo)
	stop := false
	if i == grp.itemHi {
		s.position[g] = x
		stop = p.nextGroup(k, g+1)
	}
	p.sums(grp.itemLo, i, -1)
	p.undo(mark)
	s.sum = sum
	return stop
}

// add assigns resource r to request i, in addition to earlier requests of its container.
func (p *Placer) add(i, r int32) bool {
	before := p.score[r]
	if !p.assign(i, r, p.sum[r]+p.req.items[i].quantity) {
		return false
	}
	p.sums(i, i+1, 1)
	p.exact.sum += p.score[r] - before
	return true
}

// sums adds placed requests to the use of the current container (1), or subtracts them (-1). Only
// init containers need this: a running container's requests add to all others anyway.
func (p *Placer) sums(from, to int32, sign int64) {
	if p.running {
		return
	}
	for i := from; i < to; i++ {
		if r := p.assigned[i]; p.counts(i, r) {
			p.sum[r] += sign * p.req.items[i].quantity
		}
	}
}

// endContainer continues with the container after k once all groups of k are placed.
func (p *Placer) endContainer(k int) bool {
	ctr := &p.req.containers[k]
	mark := len(p.trail)
	if k == p.req.running-1 {
		p.exact.steps += len(p.score)
		p.exact.now = p.total()
	}
	p.exact.steps += int(ctr.itemHi - ctr.itemLo)
	p.sums(ctr.itemLo, ctr.itemHi, -1)
	p.leave(ctr)
	stop := p.nextContainer(k + 1)
	p.undo(mark)
	p.enter(ctr)
	p.sums(ctr.itemLo, ctr.itemHi, 1)
	return stop
}

// isTaken reports whether an earlier group of the container has instance x, and group g, which is
// different, must have another one. The groups before g in canonical order, except those that g is
// in, are placed.
func (p *Placer) isTaken(g, x int32) bool {
	grp := &p.req.groups[g]
	for h := g - 1; h >= 0 && p.req.groups[h].parent >= 0; h-- {
		p.exact.steps++
		other := &p.req.groups[h]
		if other.different && other.signature == grp.signature && p.instanceOf(other) == x {
			return true
		}
	}
	return false
}

// instanceOf returns the instance of a placed group: the one of its level above its first request.
func (p *Placer) instanceOf(grp *group) int32 {
	x := p.tree.owner[p.assigned[grp.itemLo]]
	for p.tree.instances[x].signature != p.signatures[grp.signature] {
		x = p.tree.instances[x].parent
	}
	return x
}
