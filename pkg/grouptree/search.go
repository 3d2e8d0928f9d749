// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import (
	"math"
	"slices"
)

// DefaultStepLimit is how many steps are taken to place one request on one node before the search
// is given up. A step is one look at an instance, a resource or a request, in the walk and in the
// exact search, so that the limit bounds the work, whatever the request looks like: 2 to 3 ms on
// one core (BenchmarkStepLimit, BenchmarkHostileRequests).
const DefaultStepLimit = 400_000

// stepsPerRequest is what putting a request on a resource and taking it away again costs.
const stepsPerRequest = 4

// search is the state of the exact search: a depth-first search over the groups of the request in
// canonical order, each trying the instances of its level from the last name to the first. It
// leaves out what cannot matter:
//
//   - of instances built alike and in the same state, only the first is tried;
//   - of siblings that ask for the same, the later one goes no further up in the order than the
//     earlier one;
//   - an instance that has less free than the group needs in total;
//   - when a placement is known: what cannot score higher, even if every remaining request found
//     its best resource.
//
// Init containers have no part in the score: for them the first placement found is as good as any.
type search struct {
	steps    int  // looks at instances, resources and requests, those of the walk included
	limitHit bool // the search was given up,
	timedOut bool // at the limit of time

	at        []int32   // by group: the instance that it was put on
	tried     []int32   // instances tried so far, for the groups on the way
	remaining []float64 // by group: what it and the running groups after it can add to the sum of scores at most
	sum       float64   // of scores, as it stands
	now       float64   // the score with all running containers placed

	found    bool
	best     float64
	ceiling  float64 // no placement has a higher rank
	assigned []int32
}

// rank makes scores comparable: scores that differ by less than about 1e-9 rank the same. The
// offset keeps the fractions that scores usually are away from the edges between ranks.
func rank(score float64) float64 { return math.Floor(score*1e9 + 1/math.Pi) }

// searchAll is the exact search. The placer is in the state that reset left.
func (p *Placer) searchAll() *Placement {
	s := &p.exact
	*s = search{
		steps: s.steps, limitHit: s.limitHit, timedOut: s.timedOut,
		at: s.at, tried: s.tried[:0], remaining: s.remaining, assigned: s.assigned,
	}
	s.at = zeroed(s.at, len(p.req.groups))
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

// nextContainer places container k and all after it. It returns true when the search need not go
// on: an init container's once a placement is found, a running one's when no better placement can
// be found.
func (p *Placer) nextContainer(k int) bool {
	s := &p.exact
	if p.exhausted() {
		return true
	}
	if k == p.req.running {
		if k == 0 {
			s.now = mean(p.score)
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
		at := &p.req.containers[k]
		p.enter(at)
		stop = p.try(k, at.groupLo, 0)
		if !p.running {
			p.sidecars(at, -1)
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
	at := &p.req.groups[g]
	first, last := p.places(g, s.at[at.parent])
	if at.twin >= 0 {
		last = min(last, s.at[at.twin]+1)
	}
	tried := len(s.tried)
	stop := false
	for x := last - 1; x >= first && !stop; x-- {
		if p.exhausted() {
			stop = true
			break
		}
		s.steps++
		if !p.redundant(x, s.tried[tried:]) {
			s.tried = append(s.tried, x)
			stop = p.try(k, g, x)
		}
	}
	s.tried = s.tried[:tried]
	return stop
}

// try puts group g of container k on instance x and goes on with the groups after it. It leaves the
// state as it was.
func (p *Placer) try(k int, g, x int32) bool {
	at := &p.req.groups[g]
	if at.end > g+1 && !p.enough(at, x) {
		return false
	}
	s := &p.exact
	mark, sum := len(p.trail), s.sum
	i := at.itemLo
	for ; i < at.itemHi; i++ {
		r := p.find(i, x)
		if r < 0 || !p.add(i, r) {
			break
		}
	}
	s.steps += stepsPerRequest * int(i-at.itemLo)
	stop := false
	if i == at.itemHi {
		s.at[g] = x
		stop = p.nextGroup(k, g+1)
	}
	p.sums(at.itemLo, i, -1)
	p.undo(mark)
	s.sum = sum
	return stop
}

// add puts request i on resource r, on top of what its container has put there before.
func (p *Placer) add(i, r int32) bool {
	before := p.score[r]
	if !p.assign(i, r, p.sum[r]+p.req.items[i].quantity) {
		return false
	}
	p.sums(i, i+1, 1)
	p.exact.sum += p.score[r] - before
	return true
}

// sums adds requests that are placed to what the container that is being placed uses (1), or takes
// them away (-1). Only init containers are interested: a running container's requests come on top
// of all others anyway.
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

// endContainer goes on with the container after k, all of whose groups are placed.
func (p *Placer) endContainer(k int) bool {
	at := &p.req.containers[k]
	mark := len(p.trail)
	if k == p.req.running-1 {
		p.exact.steps += len(p.score)
		p.exact.now = mean(p.score)
	}
	p.exact.steps += int(at.itemHi - at.itemLo)
	p.sums(at.itemLo, at.itemHi, -1)
	p.leave(at)
	stop := p.nextContainer(k + 1)
	p.undo(mark)
	p.enter(at)
	p.sums(at.itemLo, at.itemHi, 1)
	return stop
}
