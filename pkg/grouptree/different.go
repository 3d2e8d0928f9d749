// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import "strings"

// Different begins a placeholder that stands for an instance of its own: of one container, two
// placeholders of the same levels that begin with it get different instances. All other
// placeholders may share one.
const Different = "!"

// isDifferent reports whether a placeholder begins with Different.
func isDifferent(placeholder string) bool { return strings.HasPrefix(placeholder, Different) }

// taken reports whether an earlier group of the container has instance x, and group g must have
// another one. The groups before g in canonical order, except those that g is in, are placed.
func (p *Placer) taken(g, x int32) bool {
	grp := &p.req.groups[g]
	if !grp.different {
		return false
	}
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
