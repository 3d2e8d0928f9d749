// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package mig_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/mig"
)

func models() []mig.Model {
	return []mig.Model{mig.A100With40GB(), mig.A100With80GB(), mig.H100With80GB()}
}

func TestTheLayoutsThatNVIDIADocuments(t *testing.T) {
	planner := mig.NewPlanner(mig.A100With40GB().Profiles, mig.DefaultBudget)
	for _, test := range []struct {
		fits   bool
		wanted []string
	}{
		{true, []string{"7g.40gb"}},
		{true, []string{"4g.20gb", "3g.20gb"}},
		{true, []string{"4g.20gb", "2g.10gb", "1g.5gb"}},
		{true, []string{"4g.20gb", "1g.5gb", "1g.5gb", "1g.5gb"}},
		{true, []string{"3g.20gb", "3g.20gb"}},
		{true, []string{"3g.20gb", "2g.10gb", "1g.5gb"}},
		{true, []string{"3g.20gb", "1g.5gb", "1g.5gb", "1g.5gb", "1g.5gb"}},
		{true, []string{"2g.10gb", "2g.10gb", "3g.20gb"}},
		{true, []string{"2g.10gb", "1g.5gb", "1g.5gb", "3g.20gb"}},
		{true, []string{"2g.10gb", "2g.10gb", "2g.10gb", "1g.5gb"}},
		{true, []string{"1g.5gb", "1g.5gb", "1g.5gb", "1g.5gb", "1g.5gb", "1g.5gb", "1g.5gb"}},
		{true, []string{"1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb"}},
		{true, []string{"1g.5gb", "1g.5gb", "1g.5gb", "1g.5gb", "1g.5gb", "1g.5gb", "1g.5gb+me"}},
		{false, []string{"7g.40gb", "1g.5gb"}},
		{false, []string{"4g.20gb", "4g.20gb"}},
		{false, []string{"3g.20gb", "3g.20gb", "1g.5gb"}},
		{false, []string{"4g.20gb", "3g.20gb", "1g.5gb"}},
		{false, []string{"2g.10gb", "2g.10gb", "2g.10gb", "2g.10gb"}},
		{false, []string{"1g.5gb", "1g.5gb", "1g.5gb", "1g.5gb", "1g.5gb", "1g.5gb", "1g.5gb", "1g.5gb"}},
		{false, []string{"1g.5gb+me", "1g.5gb+me"}},
		{false, []string{"1g.6gb"}},
	} {
		placed, ok, complete := planner.Place(nil, test.wanted)
		if ok != test.fits || !complete {
			t.Errorf("%v: %v, %v, complete %v", test.wanted, placed, ok, complete)
		}
		if err := planner.Check(placed); err != nil {
			t.Errorf("%v: %v: %v", test.wanted, placed, err)
		}
	}
}

func TestAnInstanceLeavesTheMostRoom(t *testing.T) {
	planner := mig.NewPlanner(mig.H100With80GB().Profiles, mig.DefaultBudget)
	for wanted, want := range map[string]int{"1g.10gb": 6, "2g.20gb": 4, "3g.40gb": 4, "1g.20gb": 6} {
		placed, _, _ := planner.Place(nil, []string{wanted})
		if len(placed) != 1 || placed[0].Place.Start != want {
			t.Errorf("%s is at %v, want slice %d", wanted, placed, want)
		}
	}
}

func TestABudgetEndsTheSearch(t *testing.T) {
	profiles := mig.H100With80GB().Profiles
	wanted := slices.Repeat([]string{"1g.10gb"}, 4)
	if _, ok, complete := mig.NewPlanner(profiles, 3).Place(nil, wanted); ok || complete {
		t.Errorf("with three steps: %v, complete %v", ok, complete)
	}
	placed, ok, complete := mig.NewPlanner(profiles, 8).Place(nil, wanted)
	if err := mig.NewPlanner(profiles, 8).Check(placed); !ok || complete || err != nil || len(placed) != 4 {
		t.Errorf("with eight steps: %v, %v, complete %v: %v", placed, ok, complete, err)
	}
}

// TestRandomMixesAgainstAnOracle places 1,000 random mixes on GPUs of each model, some next to
// instances that are there, and compares with all assignments of places.
func TestRandomMixesAgainstAnOracle(t *testing.T) {
	for _, model := range models() {
		t.Run(model.Name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, 2))
			planner := mig.NewPlanner(model.Profiles, mig.DefaultBudget)
			fitting := 0
			for range 1000 {
				there := randomInstances(random, model, random.IntN(4))
				wanted := make([]string, 1+random.IntN(4))
				for i := range wanted {
					wanted[i] = model.Profiles[random.IntN(len(model.Profiles))].Name
				}
				placed, ok, complete := planner.Place(there, wanted)
				want := oracle(model, there, wanted)
				if ok != (want >= 0) || !complete {
					t.Fatalf("%v next to %v: fits is %v (complete %v), the oracle says %v", wanted, there, ok,
						complete, want >= 0)
				}
				if !ok {
					continue
				}
				fitting++
				if why := invalid(model, slices.Concat(there, placed)); why != "" {
					t.Fatalf("%v next to %v: %v: %s", wanted, there, placed, why)
				}
				if room := roomLeft(model, slices.Concat(there, placed)); room != want {
					t.Fatalf("%v next to %v: %v leaves %d, possible is %d", wanted, there, placed, room, want)
				}
				var names []string
				for _, instance := range placed {
					names = append(names, instance.Profile)
				}
				if diff := cmp.Diff(wanted, names); diff != "" {
					t.Fatalf("(-wanted +placed):\n%s", diff)
				}
			}
			if fitting < 200 || fitting > 900 {
				t.Errorf("%d of 1000 mixes fit: the test says little", fitting)
			}
		})
	}
}

// randomInstances returns up to n instances that are together.
func randomInstances(random *rand.Rand, model mig.Model, n int) (there []mig.Instance) {
	for range n {
		profile := model.Profiles[random.IntN(len(model.Profiles))]
		one := mig.Instance{Profile: profile.Name, Place: profile.Places[random.IntN(len(profile.Places))]}
		if invalid(model, append(slices.Clone(there), one)) == "" {
			there = append(there, one)
		}
	}
	return there
}

// oracle tries all places of all wanted ones, and returns the most room that is left, or -1.
func oracle(model mig.Model, there []mig.Instance, wanted []string) int {
	if len(wanted) == 0 {
		if invalid(model, there) != "" {
			return -1
		}
		return roomLeft(model, there)
	}
	best := -1
	for _, profile := range model.Profiles {
		if profile.Name != wanted[0] {
			continue
		}
		for _, place := range profile.Places {
			with := append(slices.Clone(there), mig.Instance{Profile: profile.Name, Place: place})
			best = max(best, oracle(model, with, wanted[1:]))
		}
	}
	return best
}

// invalid says what is wrong with a layout, slice by slice.
func invalid(model mig.Model, instances []mig.Instance) string {
	owner, counts := map[int]string{}, map[string]int{}
	for _, instance := range instances {
		counts[instance.Profile]++
		for _, profile := range model.Profiles {
			if profile.Name == instance.Profile &&
				(counts[profile.Name] > profile.Max || !slices.Contains(profile.Places, instance.Place)) {
				return fmt.Sprintf("%v is not possible", instance)
			}
		}
		for slice := instance.Place.Start; slice < instance.Place.Start+instance.Place.Size; slice++ {
			if owner[slice] != "" {
				return fmt.Sprintf("slice %d is of two", slice)
			}
			owner[slice] = instance.Profile
		}
	}
	return ""
}

// roomLeft is the sizes of all places that one more instance could have.
func roomLeft(model mig.Model, instances []mig.Instance) (room int) {
	for _, profile := range model.Profiles {
		for _, place := range profile.Places {
			one := mig.Instance{Profile: profile.Name, Place: place}
			if invalid(model, append(slices.Clone(instances), one)) == "" {
				room += place.Size
			}
		}
	}
	return room
}

// TestChangesAgainstAnOracle has GPUs of each model get random layouts next to random instances, of
// which some are idle, and compares with all sets of instances that could go.
func TestChangesAgainstAnOracle(t *testing.T) {
	for _, model := range models() {
		t.Run(model.Name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(3, 4))
			planner := mig.NewPlanner(model.Profiles, mig.DefaultBudget)
			whole, removing := 0, 0
			for range 500 {
				there := randomInstances(random, model, random.IntN(6))
				var idle []int
				for i := range there {
					if random.IntN(2) == 0 {
						idle = append(idle, i)
					}
				}
				layout := make([]string, 1+random.IntN(4))
				for i := range layout {
					layout[i] = model.Profiles[random.IntN(len(model.Profiles))].Name
				}
				change := planner.Change(there, idle, layout)
				var after []mig.Instance
				for i, instance := range there {
					if !slices.Contains(change.Remove, i) {
						after = append(after, instance)
					} else if !slices.Contains(idle, i) {
						t.Fatalf("%v of %v, %v idle: %v removes one that is held", layout, there, idle, change)
					}
				}
				after = append(after, change.Create...)
				if why := invalid(model, after); why != "" {
					t.Fatalf("%v of %v: %v: %s", layout, there, change, why)
				}
				length, removed, created := cheapest(model, there, idle, layout)
				got := leading(after, layout)
				if got != length || len(change.Remove) != removed || len(change.Create) != created {
					t.Fatalf("%v of %v, %v idle: %v has the first %d, the oracle has %d with %d removed and %d created",
						layout, there, idle, change, got, length, removed, created)
				}
				if (len(change.Short) == 0) != (leading(after, layout) == len(layout)) {
					t.Fatalf("%v of %v: %v", layout, there, change)
				}
				if length == len(layout) {
					whole++
				}
				if removed > 0 {
					removing++
				}
			}
			if whole < 100 || whole > 450 || removing < 50 {
				t.Errorf("%d of 500 fit as a whole, %d remove something: the test says little", whole, removing)
			}
		})
	}
}

// leading returns how many profiles at the beginning of a layout the instances have.
func leading(instances []mig.Instance, layout []string) int {
	counts := map[string]int{}
	for _, instance := range instances {
		counts[instance.Profile]++
	}
	for i, profile := range layout {
		if counts[profile]--; counts[profile] < 0 {
			return i
		}
	}
	return len(layout)
}

// cheapest tries all sets of idle instances. It returns how many of the first profiles of the
// layout there can be, and how many instances must at least go and come for that.
func cheapest(model mig.Model, there []mig.Instance, idle []int, layout []string) (length, removed, created int) {
	for length = len(layout); length > 0; length-- {
		removed, created = len(there)+1, 0
		for set := range 1 << len(idle) {
			var kept []mig.Instance
			for i, instance := range there {
				if at := slices.Index(idle, i); at < 0 || set>>at&1 == 0 {
					kept = append(kept, instance)
				}
			}
			counts := map[string]int{}
			for _, instance := range kept {
				counts[instance.Profile]++
			}
			var missing []string
			for _, profile := range layout[:length] {
				if counts[profile]--; counts[profile] < 0 {
					missing = append(missing, profile)
				}
			}
			gone := len(there) - len(kept)
			if gone > removed || gone == removed && len(missing) >= created || oracle(model, kept, missing) < 0 {
				continue
			}
			removed, created = gone, len(missing)
		}
		if removed <= len(there) {
			return length, removed, created
		}
	}
	return 0, 0, 0
}

// TestAllLayouts goes through all layouts of a model that are full: no instance can be added. Of
// the five profiles that the figure of NVIDIA's MIG User Guide has, there are the 19 that it draws.
func TestAllLayouts(t *testing.T) {
	for _, model := range models() {
		drawn := mig.Model{Name: model.Name + ", the profiles that are drawn", Profiles: model.Profiles[:5]}
		for _, test := range []struct {
			model mig.Model
			want  int
		}{{model, 239}, {drawn, 19}} {
			planner := mig.NewPlanner(test.model.Profiles, mig.DefaultBudget)
			full := 0
			for there := range layouts(test.model) {
				if err := planner.Check(there); err != nil {
					t.Errorf("%s: %v", test.model.Name, err)
				}
				sevenths := 0
				for _, instance := range there {
					sevenths += test.model.Profiles[slices.IndexFunc(test.model.Profiles, func(p mig.Profile) bool {
						return p.Name == instance.Profile
					})].Slices
				}
				if sevenths > 7 {
					t.Errorf("%s: %v has %d slices of compute", test.model.Name, there, sevenths)
				}
				if roomLeft(test.model, there) == 0 {
					full++
				}
			}
			if full != test.want {
				t.Errorf("%s: %d full layouts, want %d", test.model.Name, full, test.want)
			}
		}
	}
}

// layouts yields all layouts of a model, each in the order of the slices.
func layouts(model mig.Model) func(yield func([]mig.Instance) bool) {
	return func(yield func([]mig.Instance) bool) {
		var extend func(there []mig.Instance, from int) bool
		extend = func(there []mig.Instance, from int) bool {
			if !yield(there) {
				return false
			}
			for _, profile := range model.Profiles {
				for _, place := range profile.Places {
					with := append(slices.Clone(there), mig.Instance{Profile: profile.Name, Place: place})
					if place.Start >= from && invalid(model, with) == "" && !extend(with, place.Start+place.Size) {
						return false
					}
				}
			}
			return true
		}
		extend(nil, 0)
	}
}
