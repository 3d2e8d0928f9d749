// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

// groupCapacity finds siblings with equal requests that no single instance can hold together.
func (e *explainer) groupCapacity() *Reason {
	for g := range e.req.groups {
		grp := &e.req.groups[g]
		groups, _ := e.req.twins(int32(g))
		if grp.parent < 0 || grp.twin >= 0 || groups == 1 || len(grp.needs) == 0 {
			continue
		}
		most := int64(0)
		for x := range e.tree.instances {
			e.steps++
			if e.tree.instances[x].signature == e.signatures[e.req.groups[grp.parent].signature] {
				most = max(most, e.groupsBelow(int32(g), int32(x)))
			}
		}
		if e.exhausted() {
			return nil
		}
		if most < groups {
			r := e.reason(InsufficientGroups, grp.itemLo)
			r.Level, r.Needed = lastLevel(e.req.signatures[grp.signature]), grp.needs[0].total
			r.Groups, r.Placeable = groups, most
			return r
		}
	}
	return nil
}

// groupsBelow returns an upper bound of the number of groups like g on the instances below x.
func (e *explainer) groupsBelow(g, x int32) int64 {
	grp := &e.req.groups[g]
	fitting := int64(0)
	first, last := e.tree.child(x, e.signatures[grp.signature])
	for c := first; c < last && !e.exhausted(); c++ {
		e.steps++
		here := int64(len(e.req.groups))
		for _, need := range grp.needs {
			if need.total > 0 && !e.supply(need.typ).masked {
				here = min(here, e.stock(need.typ, c).free/need.total)
			}
		}
		for child := g + 1; child < grp.end; {
			groups, next := e.req.twins(child)
			here = min(here, e.groupsBelow(child, c)/groups)
			child = next
		}
		if grp.different {
			here = min(here, 1)
		}
		fitting += here
	}
	return fitting
}
