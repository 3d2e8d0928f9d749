// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import (
	"math"
	"slices"
	"strings"
)

// Explain says why a request did not fit a node, with the most useful reason that it finds. It
// checks necessary conditions, from the plainest to the most specific: resources that the node
// lacks, resources of which no device has enough, resources of which the node and then one group
// has too little, and the number of groups that fit. It returns nil when p fits.
//
// Use it only for the few nodes and pods that a person reads about: it costs more than most
// placements, though no more than a search up to DefaultStepLimit. If a better reason would take
// longer, the reason is Fragmented, which is always true when the node as a whole has enough.
func Explain(tree *DeviceTree, used []int64, req *Request, p *Placement) *Reason {
	reason, _ := ExplainWithin(tree, used, req, p, DefaultStepLimit)
	return reason
}

// ExplainWithin is Explain with its own step limit. It also returns the number of steps: with the
// limit or more, a longer search might find a more useful reason.
func ExplainWithin(
	tree *DeviceTree, used []int64, req *Request, p *Placement, limit int,
) (reason *Reason, steps int) {
	if p.Fits {
		return nil, 0
	}
	e := explainer{
		tree: tree, used: used, req: req, limit: limit,
		signatures: appendNumbers(nil, tree.signatures, req.signatures),
		types:      appendNumbers(nil, tree.types, req.types),
		stocks:     make([][]stock, len(req.types)),
		steps:      len(req.types) + len(req.signatures) + len(req.items),
	}
	e.sumSupplies()
	for _, check := range []func() *Reason{e.missing, e.gone, e.tooSmall, e.insufficient, e.perGroup, e.groupCapacity} {
		if reason := check(); reason != nil {
			return reason, e.steps
		}
	}
	if p.LimitHit {
		return unknown(p), e.steps
	}
	return e.fragmented(), e.steps
}

// unknown is the reason when a limit ended the search. At the time limit it omits the number of
// steps, which varies: events group nodes by the text.
func unknown(p *Placement) *Reason {
	if p.TimedOut {
		return &Reason{Cause: Unknown, TimedOut: true}
	}
	return &Reason{Cause: Unknown, Steps: p.Steps}
}

// explainer searches for a reason.
type explainer struct {
	tree              *DeviceTree
	used              []int64
	req               *Request
	signatures, types []int32

	supplies []supply  // by type of the tree
	stocks   [][]stock // by type of the request, then by instance; nil until the type is needed
	steps    int       // inspected instances and groups, as in a search
	limit    int       // of steps
}

// exhausted reports whether the step limit is reached.
func (e *explainer) exhausted() bool { return e.steps >= e.limit }

// stock is the free and the total quantity of one kind of resource. Masks have none.
type stock struct{ free, total int64 }

// supply is the node's quantity of one kind of resource.
type supply struct {
	total    stock
	best     stock // of the single resource with the most free
	largest  int64 // of the largest single one, free or not
	bits     int64 // of all masks together
	masked   bool  // some are masks: then sums mean nothing
	multiple bool  // some have more than one, or are masks
}

// sumSupplies computes the supply of each kind.
func (e *explainer) sumSupplies() {
	e.supplies = make([]supply, len(e.tree.types))
	for k := range e.supplies {
		e.supplies[k].best.free = math.MinInt64
	}
	for r, typ := range e.tree.typ {
		s, allocatable := &e.supplies[typ], e.tree.allocatable[r]
		if e.tree.mode[r] == enum {
			s.masked, s.multiple, s.bits = true, true, s.bits|allocatable
			continue
		}
		s.multiple = s.multiple || allocatable > 1
		s.largest = max(s.largest, allocatable)
		s.total.add(allocatable, e.used[r])
		if free := allocatable - e.used[r]; free > s.best.free {
			s.best = stock{free: free, total: allocatable}
		}
	}
}

func (s *stock) add(allocatable, used int64) {
	s.free = addCapped(s.free, max(0, allocatable-used))
	s.total = addCapped(s.total, allocatable)
}

// supply returns the supply of a type of the request that the node has.
func (e *explainer) supply(typ int32) *supply { return &e.supplies[e.types[typ]] }

// stock returns the stock of a type of the request below instance x.
func (e *explainer) stock(typ, x int32) stock {
	if e.stocks[typ] == nil {
		e.stocks[typ] = make([]stock, len(e.tree.instances))
		e.steps += len(e.tree.typ)
		for r, treeType := range e.tree.typ {
			if treeType != e.types[typ] || e.tree.mode[r] == enum {
				continue
			}
			for x := e.tree.owner[r]; x >= 0; x = e.tree.instances[x].parent {
				e.stocks[typ][x].add(e.tree.allocatable[r], e.used[r])
			}
		}
	}
	e.steps++
	return e.stocks[typ][x]
}

// reason begins a reason about item i.
func (e *explainer) reason(cause Cause, i int32) *Reason {
	it := &e.req.items[i]
	name := e.req.types[it.typ]
	levels, resource := "", name
	if cut := strings.LastIndexByte(name, '/'); cut >= 0 {
		levels, resource = name[:cut], name[cut+1:]
	}
	r := &Reason{Cause: cause, Request: it.name, Needed: it.quantity, Resource: resource, Device: lastLevel(levels)}
	for _, ctr := range e.req.containers {
		if i >= ctr.itemLo && i < ctr.itemHi {
			r.Container = ctr.name
		}
	}
	if e.types[it.typ] >= 0 {
		s := e.supply(it.typ)
		r.Countable, r.Mask = !s.multiple, s.masked
		r.Free, r.Capacity = s.total.free, s.total.total
	}
	return r
}

// lastLevel returns the name of the level that a signature leads to.
func lastLevel(signature string) string {
	return signature[strings.LastIndexByte(signature, '/')+1:]
}

// missing finds a level or a resource that no part of the node has. If the outermost level is
// missing, it reports the device instead, which is what people search.
func (e *explainer) missing() *Reason {
	for i, it := range e.req.items {
		if e.types[it.typ] >= 0 {
			continue
		}
		r := e.reason(Missing, int32(i))
		signature := ""
		for level := range it.path().Levels() {
			outermost := signature == ""
			signature = join(signature, level)
			if _, ok := e.tree.signatures[signature]; !ok {
				r.Level = level
				if outermost {
					r.Level = r.Device
				}
				break
			}
		}
		return r
	}
	return nil
}

// gone finds an earlier allocation that the node cannot serve.
func (e *explainer) gone() *Reason {
	for i, it := range e.req.items {
		if it.pin == "" {
			continue
		}
		if r, ok := e.tree.index[it.pin]; !ok || e.tree.typ[r] != e.types[it.typ] {
			return e.reason(Gone, int32(i))
		}
	}
	return nil
}

// tooSmall finds a request that no single resource of the node can serve.
func (e *explainer) tooSmall() *Reason {
	for i, it := range e.req.items {
		s := e.supply(it.typ)
		if it.quantity <= s.best.free || s.masked && (it.quantity == 0 || s.bits&it.quantity != 0) {
			continue
		}
		reason := e.reason(Insufficient, int32(i))
		if reason.Countable && it.quantity <= 1 {
			continue // together counts how many are needed
		}
		reason.Countable = false
		reason.Level, reason.Best, reason.Total = reason.Device, max(0, s.best.free), s.best.total
		if it.quantity > s.largest && !reason.Mask {
			reason.Cause, reason.Best, reason.Total = Small, 0, s.largest
		}
		return reason
	}
	return nil
}

// insufficient finds a resource of which the node as a whole has too little for all running
// containers, or for one init container.
func (e *explainer) insufficient() *Reason {
	if e.req.running > 0 {
		if short := e.short(0, e.req.needs); short != nil {
			return e.shortage(short, 0, e.req.containers[e.req.running-1].itemHi)
		}
	}
	for _, ctr := range e.req.containers[e.req.running:] {
		if short := e.short(0, e.req.groups[ctr.groupLo].needs); short != nil {
			return e.shortage(short, ctr.itemLo, ctr.itemHi)
		}
	}
	return nil
}

// shortage is a resource of which an instance has too little.
type shortage struct {
	need need
	has  stock
}

// short finds a resource of which instance x has too little for these needs. It ignores kinds with
// masks.
func (e *explainer) short(x int32, needs []need) *shortage {
	for _, need := range needs {
		if s := e.stock(need.typ, x); need.total > s.free && !e.supply(need.typ).masked {
			return &shortage{need, s}
		}
	}
	return nil
}

// shortage makes the reason for a shortage of the items from one to another.
func (e *explainer) shortage(short *shortage, from, to int32) *Reason {
	i := from + int32(slices.IndexFunc(e.req.items[from:to], func(it item) bool { return it.typ == short.need.typ }))
	r := e.reason(Insufficient, i)
	r.Needed, r.Best, r.Total = short.need.total, short.has.free, short.has.total
	return r
}

// perGroup finds a group that needs more of a resource than any instance of its level has.
func (e *explainer) perGroup() *Reason {
	for g := range e.req.groups {
		grp := &e.req.groups[g]
		if e.exhausted() {
			return nil
		}
		if grp.parent < 0 || grp.itemEnd == grp.itemLo {
			continue
		}
		var best *shortage
		served, several := false, false
		for x := range e.tree.instances {
			e.steps++
			if e.tree.instances[x].signature != e.signatures[grp.signature] {
				continue
			}
			short := e.short(int32(x), grp.needs)
			if short == nil || e.exhausted() {
				served = true
				break
			}
			several = several || best != nil && e.resource(short) != e.resource(best)
			if best == nil || short.has.free > best.has.free {
				best = short
			}
		}
		if served || best == nil {
			continue
		}
		r := e.shortage(best, grp.itemLo, grp.itemEnd)
		if several { // instances lack different resources
			r = e.reason(Fragmented, grp.itemLo)
		}
		r.Level = lastLevel(e.req.signatures[grp.signature])
		return r
	}
	return nil
}

// resource returns the last segment of the missing resource.
func (e *explainer) resource(short *shortage) string { return lastLevel(e.req.types[short.need.typ]) }

// fragmented is the reason when the node meets each single condition.
func (e *explainer) fragmented() *Reason {
	if e.req.Empty() {
		return &Reason{Cause: Fragmented}
	}
	return e.reason(Fragmented, 0)
}
