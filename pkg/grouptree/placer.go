// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import (
	"math"
	"slices"
	"time"
)

// Placer places requests. It reuses its memory: one goroutine at a time may use it.
type Placer struct {
	limit    int       // of steps
	deadline time.Time // zero for none
	checkAt  int       // the number of steps at which the clock is read next

	tree    *DeviceTree
	req     *Request
	running bool  // the current container is a running one, not an init container
	mark    int64 // of the current container if it is a sidecar, else 0

	signatures []int32 // by the request's number: the tree's, or -1
	types      []int32
	pins       []int32 // by group: the only instance that can have it, or -1; nil for a request that is not pinned

	// The state of each resource.
	used  []int64   // by others and by this pod
	pod   []int64   // by this pod: the most that it uses at any time
	bits  []int64   // requested by this pod
	score []float64 // current
	// unscored are the types of resources that have no part in the scores, and scored counts, by
	// resource, those before it that have one; it is empty if all have.
	unscored []bool
	scored   []int32
	side     []int64 // held by sidecars while the current init container runs
	// sidecar identifies what sidecars hold, at any time: resources that differ in it serve init
	// containers differently. It counts while marked.
	sidecar []int64
	marked  bool    // the pod has init containers: side, sidecar and sum may differ
	sum     []int64 // of that init container: so far in the exact search, in one group in the walk

	touched  []int32 // by instance: allocations of this pod below it
	assigned []int32 // by request: the resource that serves it
	trail    []change
	held     []int64   // by the tree's kind of resource: by this pod; kept while bounded
	bounds   []int64   // by the tree's kind of resource: the most that the pod may hold
	bounded  bool      // the exact search finds no placement that exceeds the bounds
	saved    [][]int32 // by depth: the best assignment so far of the current group

	exact search
}

// change is the state of a resource before a change.
type change struct {
	resource        int32
	touched         bool // the change counted the resource's instances as touched
	used, pod, bits int64
	sidecar         int64
	score           float64
}

// Limits bound the cost of placing one request on one node.
type Limits struct {
	// Steps is the number of steps; 0 stands for DefaultStepLimit. For the same request, node and
	// number of steps the answer is always the same.
	Steps int
	// Time is a second limit, for a slow or busy machine; 0 stands for none.
	Time time.Duration
}

// NewPlacer returns a placer that takes at most stepLimit steps for one request; 0 stands for
// DefaultStepLimit.
func NewPlacer(stepLimit int) *Placer {
	p := &Placer{}
	p.setLimits(Limits{Steps: stepLimit})
	return p
}

// setLimits sets the limits of the next placements. Their time starts now.
func (p *Placer) setLimits(limits Limits) {
	p.limit, p.deadline = limits.Steps, time.Time{}
	if p.limit <= 0 {
		p.limit = DefaultStepLimit
	}
	if limits.Time > 0 {
		p.deadline = time.Now().Add(limits.Time)
	}
}

// stepsPerClockCheck is how many steps pass between two checks of the clock: some 50 µs.
const stepsPerClockCheck = 8192

// exhausted reports whether a limit is reached, and notes it.
func (p *Placer) exhausted() bool {
	s := &p.exact
	if s.steps < p.checkAt {
		return s.limitHit
	}
	s.limitHit = s.limitHit || s.steps >= p.limit
	if !s.limitHit && !p.deadline.IsZero() && s.steps >= stepsPerClockCheck && time.Now().After(p.deadline) {
		s.limitHit, s.timedOut = true, true
	}
	p.checkAt = min(p.limit, s.steps+stepsPerClockCheck)
	if s.limitHit {
		p.checkAt = math.MaxInt
	}
	return s.limitHit
}

// steps returns the number of steps so far, at most the limit.
func (p *Placer) steps() int { return min(p.exact.steps, p.limit) }

// limitPlacement returns the answer when the search reached a limit before it found a placement.
func (p *Placer) limitPlacement() *Placement {
	return &Placement{LimitHit: true, TimedOut: p.exact.timedOut, Steps: p.steps()}
}

// reset prepares the placer for a request on a node.
func (p *Placer) reset(tree *DeviceTree, used []int64, req *Request) {
	p.tree, p.req = tree, req
	p.exact.steps, p.exact.limitHit, p.exact.timedOut = 0, false, false
	p.checkAt = min(p.limit, stepsPerClockCheck)
	n := len(tree.names)
	p.used = append(p.used[:0], used[:n]...)
	p.pod, p.bits = zeroed(p.pod, n), zeroed(p.bits, n)
	p.side, p.sum = zeroed(p.side, n), zeroed(p.sum, n)
	p.sidecar = slices.Grow(p.sidecar[:0], n)[:n]
	if p.mark, p.marked = 0, req.running < len(req.containers); p.marked {
		clear(p.sidecar)
	}
	p.score = slices.Grow(p.score[:0], n)[:n]
	for r := range p.score {
		p.score[r] = rate(tree.mode[r], tree.allocatable[r], used[r], 0)
	}
	p.touched = zeroed(p.touched, len(tree.instances))
	p.assigned = zeroed(p.assigned, len(req.items))
	p.trail = p.trail[:0]
	p.bounded = false
	p.signatures = appendNumbers(p.signatures[:0], tree.signatures, req.signatures)
	p.types = appendNumbers(p.types[:0], tree.types, req.types)
	p.noteScored()
	p.pins = p.pins[:0]
	if req.pinned {
		p.findPins()
	}
}

// findPins finds the pinned groups: an earlier allocation of one of their requests determines the
// instance.
func (p *Placer) findPins() {
	p.pins = slices.Grow(p.pins, len(p.req.groups))[:len(p.req.groups)]
	for g := range p.pins {
		p.pins[g] = -1
	}
	for g := len(p.req.groups) - 1; g >= 0; g-- {
		grp := &p.req.groups[g]
		for i := grp.itemLo; i < grp.itemHi && p.pins[g] < 0; i++ {
			if pin := p.req.items[i].pin; pin != "" {
				if r, ok := p.tree.index[pin]; ok {
					p.pins[g] = p.tree.owner[r]
				}
			}
		}
		if grp.parent >= 0 && p.pins[g] > 0 {
			p.pins[grp.parent] = p.tree.instances[p.pins[g]].parent
		}
	}
	p.exact.steps += len(p.req.items) + len(p.req.groups)
}

// places returns the instances below x for group g, as a range.
func (p *Placer) places(g, x int32) (first, last int32) {
	first, last = p.tree.child(x, p.signatures[p.req.groups[g].signature])
	if len(p.pins) > 0 && p.pins[g] >= 0 {
		if pin := p.pins[g]; pin >= first && pin < last {
			return pin, pin + 1
		}
		return 0, 0
	}
	return first, last
}

// zeroed returns a slice of n zeros, in the memory of s when that is large enough.
func zeroed[T bool | int32 | int64](s []T, n int) []T {
	s = slices.Grow(s[:0], n)[:n]
	clear(s)
	return s
}

// appendNumbers appends the number of each name, or -1.
func appendNumbers(numbered []int32, numbers map[string]int32, names []string) []int32 {
	for _, name := range names {
		i, ok := numbers[name]
		if !ok {
			i = -1
		}
		numbered = append(numbered, i)
	}
	return numbered
}

// find returns the resource of instance x that serves request i, or -1 when x lacks it or the
// request is pinned to another one.
func (p *Placer) find(i, x int32) int32 {
	it := &p.req.items[i]
	r := p.tree.resource(x, p.types[it.typ])
	if r >= 0 && it.pin != "" && p.tree.names[r] != it.pin {
		return -1
	}
	return r
}

// modeFor returns the mode of request i on resource r, which determines fit and score.
func (p *Placer) modeFor(i, r int32) mode {
	if m := p.req.items[i].scorer; m != defaultMode {
		return m
	}
	return p.tree.mode[r]
}

// counts reports whether request i consumes resource r. A container's scorer may make a quantity of
// a mask, but no mask of a quantity: otherwise a user could get a device that is taken.
func (p *Placer) counts(i, r int32) bool {
	return p.tree.mode[r] != enum || p.req.items[i].scorer == leftOver
}

// assign assigns resource r to request i, if it fits there. whole is the total that an init
// container assigns to r, the request included; running containers do not use it.
func (p *Placer) assign(i, r int32, whole int64) bool {
	quantity := p.req.items[i].quantity
	if p.modeFor(i, r) == enum && quantity != 0 && p.tree.allocatable[r]&quantity == 0 {
		return false
	}
	more := int64(0)
	if p.counts(i, r) {
		more = p.addedUse(r, quantity, whole)
		if more > p.tree.allocatable[r]-p.used[r] {
			return false
		}
	}
	if p.bounded && more > 0 {
		typ := p.tree.typ[r]
		if more > p.bounds[typ]-p.held[typ] {
			return false
		}
		p.held[typ] += more
	}
	p.touch(i, r)
	p.set(i, r, more)
	return true
}

// addedUse returns by how much the pod's use of resource r grows with a request: a running
// container adds its quantity, an init container shares the quantity that the pod uses at other
// times.
func (p *Placer) addedUse(r int32, quantity, whole int64) int64 {
	if p.running {
		return quantity
	}
	return max(0, whole+p.side[r]-p.pod[r])
}

// set changes the state of resource r for an additional use by request i. undo reverts it.
func (p *Placer) set(i, r int32, more int64) {
	p.used[r] += more
	p.pod[r] += more
	if p.mark != 0 {
		p.sidecar[r] += more * p.mark
	}
	p.bits[r] |= p.req.items[i].quantity
	p.score[r] = rate(p.modeFor(i, r), p.tree.allocatable[r], p.used[r], p.bits[r])
}

// remember saves the state of resource r for undo.
func (p *Placer) remember(r int32, touched bool) {
	p.trail = append(p.trail,
		change{
			resource: r, touched: touched, used: p.used[r], pod: p.pod[r], bits: p.bits[r], sidecar: p.sidecar[r],
			score: p.score[r],
		})
}

// touch notes that resource r serves request i.
func (p *Placer) touch(i, r int32) {
	p.remember(r, true)
	p.assigned[i] = r
	for x := p.tree.owner[r]; x >= 0; x = p.tree.instances[x].parent {
		p.touched[x]++
	}
}

// undo restores the state in which the trail had this length.
func (p *Placer) undo(mark int) {
	for k := len(p.trail) - 1; k >= mark; k-- {
		c := &p.trail[k]
		if p.bounded {
			p.held[p.tree.typ[c.resource]] -= p.pod[c.resource] - c.pod
		}
		p.used[c.resource], p.pod[c.resource], p.bits[c.resource], p.score[c.resource] = c.used, c.pod, c.bits, c.score
		p.sidecar[c.resource] = c.sidecar
		if c.touched {
			for x := p.tree.owner[c.resource]; x >= 0; x = p.tree.instances[x].parent {
				p.touched[x]--
			}
		}
	}
	p.trail = p.trail[:mark]
}

// enter prepares the placer for a container.
func (p *Placer) enter(ctr *container) {
	p.running, p.mark = ctr.kind != Init, 0
	if ctr.kind == Sidecar && p.marked {
		p.mark = sidecarMark(ctr.order)
	}
	if !p.running {
		p.sidecars(ctr, 1)
	}
}

// sidecarMark returns a number such that sums of quantities, each times the mark of its sidecar,
// are equal only if the same sidecars hold the same.
func sidecarMark(order int) int64 { return int64(2*order+1) * 0x1E3779B97F4A7C1 }

// leave reverts enter, and the effects of this container's own scorers.
func (p *Placer) leave(ctr *container) {
	if !p.running {
		p.sidecars(ctr, -1)
	}
	if !p.req.rescored {
		return
	}
	for i := ctr.itemLo; i < ctr.itemHi; i++ {
		if r := p.assigned[i]; p.req.items[i].scorer != defaultMode {
			p.remember(r, false)
			p.score[r] = rate(p.tree.mode[r], p.tree.allocatable[r], p.used[r], p.bits[r])
		}
	}
}

// sidecars adds to side (or subtracts, with -1) the holdings of the sidecars that run along with
// init container ctr.
func (p *Placer) sidecars(ctr *container, sign int64) {
	p.exact.steps += p.req.running
	for k := range p.req.running {
		sidecar := &p.req.containers[k]
		if sidecar.kind != Sidecar || sidecar.order > ctr.order {
			continue
		}
		p.exact.steps += int(sidecar.itemHi - sidecar.itemLo)
		for i := sidecar.itemLo; i < sidecar.itemHi; i++ {
			if r := p.assigned[i]; p.counts(i, r) {
				p.side[r] += sign * p.req.items[i].quantity
			}
		}
	}
}
