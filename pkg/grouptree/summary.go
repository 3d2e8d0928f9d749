// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import (
	"cmp"
	"math"
	"slices"
)

// Summary is the free quantities of a node in one state, by kind of resource and by group. It
// answers in microseconds whether a request can fit at all, so that most nodes that a request does
// not fit need no search. It is immutable and safe for concurrent use.
type Summary struct {
	tree  *DeviceTree
	kinds []kindSummary // by type of the tree
	// below is the free quantity below each instance: for one type after another, all instances. It
	// is nil for a node for which it would be too large.
	below []int64
}

// kindSummary is the free quantity of one kind of resource.
type kindSummary struct {
	total   int64 // of all resources together
	largest int64 // of a single one
	masked  bool  // some are masks, which pods match and do not consume: sums mean nothing
}

// maxBelow is the maximum length of Summary.below.
const maxBelow = 1 << 18

// Summarize computes the free quantities of a node with these used quantities.
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
		inUse := s.below[int(typ)*instances:][:instances]
		for x := tree.owner[r]; x >= 0; x = tree.instances[x].parent {
			inUse[x] = addCapped(inUse[x], max(0, free))
		}
	}
	return s
}

// MayFit reports whether the request may fit the node. It checks only necessary conditions: if it
// returns false, no placement exists.
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

// Knows reports whether the tree has every kind of resource of the request. If not, no placement
// exists in any state of the node.
func (tree *DeviceTree) Knows(req *Request) bool {
	for _, name := range req.types {
		if _, ok := tree.types[name]; !ok {
			return false
		}
	}
	return true
}

// hasGroups reports whether the node has space for the number of groups of the condition.
func (s *Summary) hasGroups(req *Request, c *groupCondition) bool {
	typ := s.tree.types[req.types[c.typ]]
	if s.kinds[typ].masked {
		return true
	}
	signature, ok := s.tree.signatures[req.signatures[c.signature]]
	if !ok {
		return false
	}
	free, missing := s.below[int(typ)*len(s.tree.instances):], c.groups
	for x := range s.tree.instances {
		if s.tree.instances[x].signature == signature {
			if missing -= free[x] / c.quantity; missing <= 0 {
				return true
			}
		}
	}
	return false
}

// maxGroupConditions is how many conditions about groups a request has at most: those that need
// most. A user's request has a few.
const maxGroupConditions = 16

// findConditions computes the conditions of a request, whose other fields are complete.
func (r *Request) findConditions() {
	c := conditions{kinds: make([]kindCondition, len(r.types))}
	for i := range r.items {
		kind := &c.kinds[r.items[i].typ]
		kind.largest = max(kind.largest, r.items[i].quantity)
	}
	for _, need := range r.needs {
		c.kinds[need.typ].total = need.total
	}
	for _, ctr := range r.containers[r.running:] {
		for _, need := range r.groups[ctr.groupLo].needs {
			c.kinds[need.typ].total = max(c.kinds[need.typ].total, need.total)
		}
	}
	alike := make([]int64, len(r.groups)) // how many groups of a container have equal requests; 0 for all but the first
	for g := range r.groups {
		grp := &r.groups[g]
		switch {
		case grp.parent < 0:
			alike[g] = 1
			continue
		case grp.twin >= 0 || alike[grp.parent] == 0:
			continue
		}
		groups, _ := r.twins(int32(g))
		alike[g] = alike[grp.parent] * groups
		for _, need := range grp.needs {
			if need.total > 0 {
				c.groups = append(c.groups, groupCondition{grp.signature, need.typ, need.total, alike[g]})
			}
		}
	}
	slices.SortStableFunc(c.groups, func(a, b groupCondition) int {
		return cmp.Compare(float64(b.quantity)*float64(b.groups), float64(a.quantity)*float64(a.groups))
	})
	c.groups = slices.Compact(c.groups)
	r.conditions = conditions{c.kinds, slices.Clone(c.groups[:min(len(c.groups), maxGroupConditions)])}
}

// twins returns how many siblings from group g on have equal requests, and the group after them.
func (r *Request) twins(g int32) (groups int64, next int32) {
	groups, next = 1, r.groups[g].end
	for next < int32(len(r.groups)) && r.groups[next].parent == r.groups[g].parent && r.groups[next].twin >= 0 {
		groups, next = groups+1, r.groups[next].end
	}
	return groups, next
}
