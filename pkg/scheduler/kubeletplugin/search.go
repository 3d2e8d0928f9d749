// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletplugin

import (
	"cmp"
	"math"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
)

// stepLimit is how many places, or devices, are tried for one pod before a search gives up.
const stepLimit = 1000

// checkOpen returns an error if there is a group whose open devices cannot be given, whatever the others get.
func (c *chooser) checkOpen(open []*group) error {
	for _, g := range open {
		if len(c.candidates(g)) == 0 {
			return c.lacking(g)
		}
	}
	for _, g := range open {
		if c.rooms(g) < countAlike(open, g) {
			return lackingTogether(open)
		}
	}
	return nil
}

// giveOpen gives the devices that groups leave open, each group's in one place.
func (c *chooser) giveOpen(open []*group) error {
	// The groups that are hardest to place come first.
	slices.SortStableFunc(open, func(a, b *group) int { return cmp.Compare(len(b.items), len(a.items)) })
	switch {
	case c.search(open, 0, make([]int, len(open))):
		return nil
	case c.steps == stepLimit:
		return errGivenUp
	default:
		return lackingTogether(open)
	}
}

// countAlike returns how many groups are like one of them, that one included.
func countAlike(groups []*group, as *group) int {
	n := 0
	for _, g := range groups {
		if g == as || g.alike(as) {
			n++
		}
	}
	return n
}

// rooms returns for how many groups that are like this one there is room, if there were no others.
func (c *chooser) rooms(g *group) int {
	rooms := 0
	for _, p := range c.stock {
		if !c.mayBe(g, p) {
			continue
		}
		here := math.MaxInt
		for resource, n := range g.open {
			here = min(here, len(p.available(resource, g.owner))/n)
		}
		rooms += here
	}
	return rooms
}

// mayBe reports whether a group may be met at a place: whether that is what its placeholder and the devices that it names
// say, and the place is known when there is more than one device to be together.
func (c *chooser) mayBe(g *group, p *place) bool {
	home := g.home()
	unsure := home == "" && len(g.items) > 1 && p.name == kubeletdevice.Unknown
	return !unsure && (home == "" || home == p.name) && (g.anchor == nil || g.anchor == p)
}

// candidates returns the places where a group can be met as things stand, the best first: where the pod needs the fewest
// further devices, and of these where the fewest are left over.
func (c *chooser) candidates(g *group) []*place {
	open := g.open
	type candidate struct {
		*place
		further, left int
	}
	var found []candidate
	for _, p := range c.stock {
		if !c.mayBe(g, p) {
			continue
		}
		at, enough := candidate{place: p}, true
		for resource, n := range open {
			available := p.available(resource, g.owner)
			if enough = len(available) >= n; !enough {
				break
			}
			at.left += len(available) - n
			for _, d := range available[:n] {
				if len(d.holders) == 0 {
					at.further++
				}
			}
		}
		if enough {
			found = append(found, at)
		}
	}
	slices.SortStableFunc(found, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.further, b.further), cmp.Compare(a.left, b.left))
	})
	places := make([]*place, len(found))
	for i, at := range found {
		places[i] = at.place
	}
	return places
}

// search places the groups from number n on. at has, for those before, the number of the place in the stock. It returns
// false, and gives no device, when there is no way to meet them all, or when it finds none within its steps.
func (c *chooser) search(groups []*group, n int, at []int) bool {
	if n == len(groups) {
		return true
	}
	g, first := groups[n], 0
	for i, before := range groups[:n] { // of groups that are alike, the later one goes no further to the front
		if before.alike(g) {
			first = at[i]
		}
	}
	for _, p := range c.candidates(g) {
		if at[n] = slices.Index(c.stock, p); at[n] < first {
			continue
		}
		if c.steps == stepLimit {
			return false
		}
		c.steps++
		given := len(g.owner.picks)
		for _, it := range g.items {
			if it.id == "" {
				g.owner.give(it.request, p, p.available(it.resource, g.owner)[0])
			}
		}
		if c.search(groups, n+1, at) {
			return true
		}
		g.owner.takeBack(given)
	}
	return false
}
