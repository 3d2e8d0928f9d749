// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import (
	"cmp"
	"math"
	"slices"
)

// Summary is what is free on a node in one state, counted by kind of resource and by group. It
// answers in microseconds whether a request can fit at all, so that most nodes on which a request
// does not fit need no search. It is immutable and safe for concurrent use.
type Summary struct {
	tree  *DeviceTree
	kinds []kindSummary // by type of the tree
	// below is what is free below each instance: for one type after another, all instances. It is
	// nil for a node on which it would be too large.
	below []int64
}

// kindSummary is what is free of one kind of resource.
type kindSummary struct {
	total   int64 // of all resources together
	largest int64 // the most of a single one
	masked  bool  // some are masks, which are matched and not consumed: nothing follows from sums
}

// maxBelow is how many numbers a summary has at most for what is below instances.
const maxBelow = 1 << 18

// Summarize counts what is free on a node of which used is in use.
func (tree *DeviceTree) Summarize(used []int64) *Summary {
	s := &Summary{tree: tree, kinds: make([]kindSummary, len(tree.types))}
	for k := range s.kinds {
		s.kinds[k].largest = math.MinInt64
	}
	instances := len(tree.instances)
	if len(s.kinds)*instances <= maxBelow {
		s.below = make([]int64, len(s.kinds)*instances)
	}
	for r, typ := range tree.typ {
		kind := &s.kinds[typ]
		if tree.mode[r] == enum {
			kind.masked = true
			continue
		}
		free := tree.allocatable[r] - used[r]
		kind.largest = max(kind.largest, free)
		kind.total = addCapped(kind.total, max(0, free))
		if s.below == nil {
			continue
		}
		of := s.below[int(typ)*instances:][:instances]
		for x := tree.owner[r]; x >= 0; x = tree.instances[x].parent {
			of[x] = addCapped(of[x], max(0, free))
		}
	}
	return s
}

// MayFit reports whether the request may fit the node. It looks at necessary conditions alone: when
// it returns false, no placement exists.
func (s *Summary) MayFit(req *Request) bool {
	for t, name := range req.types {
		typ, ok := s.tree.types[name]
		if !ok {
			return false
		}
		kind, needed := &s.kinds[typ], &req.conditions.kinds[t]
		if !kind.masked && (needed.largest > 0 && needed.largest > kind.largest || needed.total > kind.total) {
			return false
		}
	}
	if s.below == nil {
		return true
	}
	for i := range req.conditions.groups {
		if !s.hasGroups(req, &req.conditions.groups[i]) {
			return false
		}
	}
	return true
}

// Knows reports whether the tree has every kind of resource that the request is for. Where it does
// not, no placement exists, whatever is free.
func (tree *DeviceTree) Knows(req *Request) bool {
	for _, name := range req.types {
		if _, ok := tree.types[name]; !ok {
			return false
		}
	}
	return true
}

// hasGroups reports whether the node has room for as many groups as the condition says.
func (s *Summary) hasGroups(req *Request, c *groupCondition) bool {
	typ := s.tree.types[req.types[c.typ]]
	if s.kinds[typ].masked {
		return true
	}
	signature, ok := s.tree.signatures[req.signatures[c.signature]]
	if !ok {
		return false
	}
	of, missing := s.below[int(typ)*len(s.tree.instances):], c.groups
	for x := range s.tree.instances {
		if s.tree.instances[x].signature == signature {
			if missing -= of[x] / c.quantity; missing <= 0 {
				return true
			}
		}
	}
	return false
}

// conditions are what a node needs at least so that a request can fit, see Summary.
type conditions struct {
	kinds  []kindCondition // by type of the request
	groups []groupCondition
}

// kindCondition is what a request needs of one kind of resource.
type kindCondition struct {
	largest int64 // of a single resource
	total   int64 // of all together: for the running containers, or for one init container
}

// groupCondition says that there must be several groups that have so much free each, or fewer with
// more. One instance may be several groups.
type groupCondition struct {
	signature, typ   int32 // of the request
	quantity, groups int64
}

// maxGroupConditions is how many conditions about groups are looked at: those that need most. A
// user's request has a few.
const maxGroupConditions = 16

// findConditions computes the conditions of a request that is otherwise complete.
func (r *Request) findConditions() {
	c := conditions{kinds: make([]kindCondition, len(r.types))}
	for i := range r.items {
		kind := &c.kinds[r.items[i].typ]
		kind.largest = max(kind.largest, r.items[i].quantity)
	}
	for _, need := range r.needs {
		c.kinds[need.typ].total = need.total
	}
	for _, at := range r.containers[r.running:] {
		for _, need := range r.groups[at.groupLo].needs {
			c.kinds[need.typ].total = max(c.kinds[need.typ].total, need.total)
		}
	}
	alike := make([]int64, len(r.groups)) // how many groups of a container request the same; 0 for all but the first
	for g := range r.groups {
		at := &r.groups[g]
		switch {
		case at.parent < 0:
			alike[g] = 1
			continue
		case at.twin >= 0 || alike[at.parent] == 0:
			continue
		}
		groups, _ := r.twins(int32(g))
		alike[g] = alike[at.parent] * groups
		for _, need := range at.needs {
			if need.total > 0 {
				c.groups = append(c.groups, groupCondition{at.signature, need.typ, need.total, alike[g]})
			}
		}
	}
	slices.SortStableFunc(c.groups, func(a, b groupCondition) int {
		return cmp.Compare(float64(b.quantity)*float64(b.groups), float64(a.quantity)*float64(a.groups))
	})
	c.groups = slices.Compact(c.groups)
	r.conditions = conditions{c.kinds, slices.Clone(c.groups[:min(len(c.groups), maxGroupConditions)])}
}

// twins returns how many siblings from group g on ask for the same, and the group after them.
func (r *Request) twins(g int32) (groups int64, next int32) {
	groups, next = 1, r.groups[g].end
	for next < int32(len(r.groups)) && r.groups[next].parent == r.groups[g].parent && r.groups[next].twin >= 0 {
		groups, next = groups+1, r.groups[next].end
	}
	return groups, next
}
