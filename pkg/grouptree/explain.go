// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import "strings"

// Explain says why a request did not fit a node, in the most telling way that it finds. It looks at necessary
// conditions, from the plainest to the most specific: what the node lacks, what no device has enough of, what the node,
// and then what one group, has too little of, and how many groups there is room for. It returns nil when p fits.
//
// It is meant for the few nodes and pods that someone reads about: it costs far more than a placement.
func Explain(tree *DeviceTree, used []int64, req *Request, p *Placement) *Reason {
	if p.Fits {
		return nil
	}
	e := explainer{tree: tree, used: used, req: req}
	e.signatures = lookUp(nil, tree.signatures, req.signatures)
	e.types = lookUp(nil, tree.types, req.types)
	for _, check := range []func() *Reason{e.missing, e.gone, e.alone, e.together, e.perGroup, e.rooms} {
		if reason := check(); reason != nil {
			return reason
		}
	}
	if p.LimitHit {
		return &Reason{Cause: Unknown, Steps: p.Steps}
	}
	return e.fragmented()
}

// explainer looks for a reason.
type explainer struct {
	tree              *DeviceTree
	used              []int64
	req               *Request
	signatures, types []int32
}

// stock is how much of one kind of resource is free, and how much there is.
type stock struct{ free, of int64 }

// stock returns what there is of a kind of resource below instance x. Masks have none.
func (e *explainer) stock(typ, x int32) stock {
	var s stock
	in := &e.tree.instances[x]
	for r := in.lo; r < in.hi; r++ {
		if e.tree.typ[r] == e.types[typ] && e.tree.mode[r] != enum {
			s.free = addCapped(s.free, max(0, e.tree.allocatable[r]-e.used[r]))
			s.of = addCapped(s.of, e.tree.allocatable[r])
		}
	}
	return s
}

// reason begins a reason that concerns item i.
func (e *explainer) reason(cause Cause, i int32) *Reason {
	it := &e.req.items[i]
	path := it.path()
	r := &Reason{
		Cause: cause, Request: it.name, Needed: it.quantity,
		Resource: path.Resource(), Device: path.DeviceLevel(), Countable: true,
	}
	for _, at := range e.req.containers {
		if i >= at.itemLo && i < at.itemHi {
			r.Container = at.name
		}
	}
	for k, typ := range e.tree.typ {
		if typ == e.types[it.typ] {
			r.Countable = r.Countable && e.tree.allocatable[k] <= 1 && e.tree.mode[k] != enum
			r.Mask = r.Mask || e.tree.mode[k] == enum
		}
	}
	if e.types[it.typ] >= 0 {
		s := e.stock(it.typ, 0)
		r.Free, r.Capacity = s.free, s.of
	} else {
		r.Countable = false
	}
	return r
}

// lastLevel returns the name of the level that a signature leads to.
func lastLevel(signature string) string {
	return signature[strings.LastIndexByte(signature, '/')+1:]
}

// missing finds a level or a resource that the node has nowhere. Where already the outermost level is missing, it is the
// device that people miss.
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

// gone finds an allocation from before that the node cannot serve.
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

// alone finds a request that no single resource of the node can serve.
func (e *explainer) alone() *Reason {
	for i, it := range e.req.items {
		fits, best, largest := false, stock{free: -1}, int64(0)
		for r, typ := range e.tree.typ {
			if typ != e.types[it.typ] {
				continue
			}
			allocatable := e.tree.allocatable[r]
			if e.tree.mode[r] == enum {
				fits = fits || it.quantity == 0 || allocatable&it.quantity != 0
				continue
			}
			largest = max(largest, allocatable)
			if free := max(0, allocatable-e.used[r]); free > best.free {
				best = stock{free: free, of: allocatable}
			}
			fits = fits || it.quantity <= allocatable-e.used[r]
		}
		if fits {
			continue
		}
		reason := e.reason(Insufficient, int32(i))
		if reason.Countable && it.quantity <= 1 {
			continue // together counts how many are needed
		}
		reason.Countable = false
		reason.Level, reason.Best, reason.Of = reason.Device, max(0, best.free), best.of
		if it.quantity > largest && !reason.Mask {
			reason.Cause, reason.Best, reason.Of = Small, 0, largest
		}
		return reason
	}
	return nil
}

// together finds what the node as a whole has too little of for all running containers, or for one init container.
func (e *explainer) together() *Reason {
	ends := []int32{}
	if e.req.running > 0 {
		ends = append(ends, e.req.containers[e.req.running-1].itemHi)
	}
	from := int32(0)
	for _, at := range e.req.containers[e.req.running:] {
		ends = append(ends, at.itemHi)
	}
	for _, to := range ends {
		if r := e.short(0, from, to); r != nil {
			return r
		}
		from = to
	}
	return nil
}

// short finds what instance x has too little of for the requests from one to another.
func (e *explainer) short(x, from, to int32) *Reason {
	for _, need := range e.req.sum(e.req.items[from:to]) {
		s := e.stock(need.typ, x)
		if need.total <= s.free || e.masked(need.typ) {
			continue
		}
		for i := from; i < to; i++ {
			if e.req.items[i].typ == need.typ {
				r := e.reason(Insufficient, i)
				r.Needed, r.Best, r.Of = need.total, s.free, s.of
				return r
			}
		}
	}
	return nil
}

// masked reports whether resources of a kind are masks on some instance: then sums say nothing.
func (e *explainer) masked(typ int32) bool {
	for r, t := range e.tree.typ {
		if t == e.types[typ] && e.tree.mode[r] == enum {
			return true
		}
	}
	return false
}

// perGroup finds a group that needs more of something than any instance of its level has.
func (e *explainer) perGroup() *Reason {
	for g := range e.req.groups {
		at := &e.req.groups[g]
		if at.parent < 0 || at.itemEnd == at.itemLo {
			continue
		}
		var best *Reason
		served, several := false, false
		for x := range e.tree.instances {
			if e.tree.instances[x].signature != e.signatures[at.signature] {
				continue
			}
			r := e.short(int32(x), at.itemLo, at.itemEnd)
			if r == nil {
				served = true
				break
			}
			several = several || best != nil && r.Resource != best.Resource
			if best == nil || r.Best > best.Best {
				best = r
			}
		}
		if served || best == nil {
			continue
		}
		if several { // one lacks this, the other that
			best = e.reason(Fragmented, at.itemLo)
		}
		best.Level = lastLevel(e.req.signatures[at.signature])
		return best
	}
	return nil
}

// fragmented is the reason that is left when each single condition is met.
func (e *explainer) fragmented() *Reason {
	if e.req.Empty() {
		return &Reason{Cause: Fragmented}
	}
	return e.reason(Fragmented, 0)
}
