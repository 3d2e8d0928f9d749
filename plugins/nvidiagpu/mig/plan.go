// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"cmp"
	"fmt"
	"slices"
)

// Instance is a GPU instance: its profile's name, and where it is.
type Instance struct {
	Profile string
	Place   Place
}

// DefaultBudget is more steps than the profiles of this package's models ever need.
const DefaultBudget = 1_000_000

// Planner plans the instances of one GPU.
type Planner struct {
	profiles map[string]Profile
	budget   int // steps of one call
}

// NewPlanner returns a planner for a GPU that has these profiles. A call takes at most so many
// steps.
func NewPlanner(profiles []Profile, budget int) *Planner {
	p := &Planner{profiles: make(map[string]Profile, len(profiles)), budget: budget}
	for _, profile := range profiles {
		p.profiles[profile.Name] = profile
	}
	return p
}

// Check says why instances cannot be together on the GPU, or nil.
func (p *Planner) Check(instances []Instance) error {
	counts := map[string]int{}
	for i, a := range instances {
		profile, ok := p.profiles[a.Profile]
		if !ok {
			return fmt.Errorf("the GPU has no profile %q", a.Profile)
		}
		if !slices.Contains(profile.Places, a.Place) {
			return fmt.Errorf("%s cannot be at slice %d", a.Profile, a.Place.Start)
		}
		if counts[a.Profile]++; counts[a.Profile] > profile.Max {
			return fmt.Errorf("there can be only %d of %s", profile.Max, a.Profile)
		}
		for _, b := range instances[:i] {
			if overlap(a.Place, b.Place) {
				return fmt.Errorf("%s and %s have slices in common", a.Profile, b.Profile)
			}
		}
	}
	return nil
}

func overlap(a, b Place) bool { return a.Start < b.Start+b.Size && b.Start < a.Start+a.Size }

// Place returns where instances of these profiles can be next to those that are there, in the order
// of wanted. Of all ways it takes the one that leaves the most room: the places that further
// instances still have, each counted by its size. ok is false when there is none. complete is false
// when the budget ended the search: what was found until then is valid, and may not be the best.
func (p *Planner) Place(there []Instance, wanted []string) (placed []Instance, ok, complete bool) {
	s := &search{planner: p, counts: map[string]int{}, budget: p.budget, best: -1}
	for _, instance := range there {
		s.taken |= mask(instance.Place)
		s.counts[instance.Profile]++
	}
	s.order = make([]int, len(wanted))
	for i, name := range wanted {
		if _, known := p.profiles[name]; !known {
			return nil, false, true
		}
		s.order[i] = i
	}
	// The large ones have the fewest places; equal ones are next to each other.
	slices.SortStableFunc(s.order, func(i, j int) int {
		a, b := p.profiles[wanted[i]], p.profiles[wanted[j]]
		return cmp.Or(cmp.Compare(len(a.Places), len(b.Places)), cmp.Compare(a.Name, b.Name))
	})
	s.wanted, s.at = wanted, make([]Place, len(wanted))
	s.place(0)
	return s.found, s.best >= 0, s.budget > 0
}

// search is one call of Place.
type search struct {
	planner *Planner
	wanted  []string
	order   []int // in which they are placed
	budget  int

	taken  uint64 // slices, as bits
	counts map[string]int
	at     []Place
	found  []Instance
	best   int // what the found one leaves; -1 for none
}

// maxIdle is how many instances Change considers to remove: more than there can be slices for.
const maxIdle = 8

// Change is what makes of the instances that there are those that there should be.
type Change struct {
	// Remove are the instances that go, by their positions in the list of those that are there.
	Remove []int
	// Create are those that come then, in the order of the layout.
	Create []Instance
	// Short are the profiles of the layout for which there is no room.
	Short []string
}

// Change returns how a GPU gets the instances of a layout. Of those that are there only the idle
// ones may go, which are given by their positions. As many as possible of the profiles that come
// first in the layout are there in the end. For that it removes as few as possible, and then
// creates as few as possible; what is not in the layout and in no instance's way stays.
func (p *Planner) Change(there []Instance, idle []int, layout []string) Change {
	idle = idle[:min(len(idle), maxIdle)]
	for length := len(layout); length > 0; length-- {
		best, found := Change{}, false
		for set := range 1 << len(idle) {
			remove := members(idle, set)
			if found && len(remove) > len(best.Remove) {
				continue
			}
			kept := withoutInstances(there, remove)
			missing := lacks(kept, layout[:length])
			if found && len(remove) == len(best.Remove) && len(missing) >= len(best.Create) {
				continue
			}
			if create, ok, _ := p.Place(kept, missing); ok {
				best, found = Change{Remove: remove, Create: create}, true
			}
		}
		if found {
			best.Short = lacks(append(withoutInstances(there, best.Remove), best.Create...), layout)
			return best
		}
	}
	return Change{Short: lacks(there, layout)}
}

// members returns the elements of the list whose bits are set.
func members(list []int, set int) (elements []int) {
	for i, element := range list {
		if set&(1<<i) != 0 {
			elements = append(elements, element)
		}
	}
	return elements
}

// withoutInstances returns the instances but those at some positions.
func withoutInstances(there []Instance, positions []int) (kept []Instance) {
	for i, instance := range there {
		if !slices.Contains(positions, i) {
			kept = append(kept, instance)
		}
	}
	return kept
}

// lacks returns the profiles that the instances lack of a layout, in its order.
func lacks(there []Instance, layout []string) []string {
	missing := slices.Clone(layout)
	for _, instance := range there {
		if at := slices.Index(missing, instance.Profile); at >= 0 {
			missing = slices.Delete(missing, at, at+1)
		}
	}
	return missing
}

func mask(place Place) uint64 { return (1<<place.Size - 1) << place.Start }

// place places the wanted from a position in the order on, in all ways.
func (s *search) place(position int) {
	if s.budget--; s.budget <= 0 {
		return
	}
	if position == len(s.order) {
		if room := s.room(); room > s.best {
			s.best, s.found = room, make([]Instance, len(s.wanted))
			for i, name := range s.wanted {
				s.found[i] = Instance{Profile: name, Place: s.at[i]}
			}
		}
		return
	}
	i := s.order[position]
	profile := s.planner.profiles[s.wanted[i]]
	if s.counts[profile.Name] >= profile.Max {
		return
	}
	first := 0
	if position > 0 && s.wanted[s.order[position-1]] == profile.Name {
		// Of equal ones the later is behind the earlier: else each set came in all its orders.
		first = slices.Index(profile.Places, s.at[s.order[position-1]]) + 1
	}
	for _, place := range profile.Places[first:] {
		if s.taken&mask(place) != 0 {
			continue
		}
		s.taken |= mask(place)
		s.counts[profile.Name]++
		s.at[i] = place
		s.place(position + 1)
		s.taken &^= mask(place)
		s.counts[profile.Name]--
	}
}

// room returns how much further instances could still have.
func (s *search) room() int {
	room := 0
	for _, profile := range s.planner.profiles {
		if s.counts[profile.Name] >= profile.Max {
			continue
		}
		for _, place := range profile.Places {
			if s.taken&mask(place) == 0 {
				room += place.Size
			}
		}
	}
	return room
}
