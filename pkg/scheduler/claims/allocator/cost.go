// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"slices"

	"github.com/kubedevice/kubedevice/pkg/scheduler/claims/pool"
)

// Cost is how bad an allocation is. Costs are compared in the order of the fields.
type Cost struct {
	// Within is how far the devices of one request are apart: the sum over all pairs of devices of
	// one request, and over all levels, of 1 for a level at which they are not in one group.
	Within int
	// Across is the same for pairs of devices of different requests.
	Across int
	// Fragments has two numbers for each level, the closest first: of groups that had no allocated
	// device and now have allocated and free ones, and of free devices that remain in groups of
	// which devices are taken.
	Fragments []int
}

// Compare returns a negative number if the cost is lower than another one.
func (c Cost) Compare(other Cost) int {
	return slices.Compare(append([]int{c.Within, c.Across}, c.Fragments...),
		append([]int{other.Within, other.Across}, other.Fragments...))
}

// topology has the groups of a node's devices.
type topology struct {
	// groups has the number of each device's group, by level and the index of the device. Without a
	// value of the level's attribute the device is in a group of its own, with a negative number.
	groups [][]int32
	// owners has the same per driver: what remains of a group matters to those who request devices
	// of that driver.
	owners [][]int32
	// size and free count the devices of the groups of owners, by level.
	size, free [][]int
}

// topologyOf returns the groups of the devices of the search's node.
func (s *search) topologyOf() *topology {
	t := &topology{}
	type owner struct {
		driver string
		value  value
	}
	for _, level := range s.request.options.Levels {
		numbers, owned := map[value]int32{}, map[owner]int32{}
		groups, owners := make([]int32, len(s.node.Devices)), make([]int32, len(s.node.Devices))
		var size, free []int
		for i, device := range s.node.Devices {
			v := attribute(device, level)
			if v.kind == 0 || v.kind == kindUnknown {
				groups[i], owners[i] = int32(-1-i), -1
				continue
			}
			if _, known := numbers[v]; !known {
				numbers[v] = int32(len(numbers))
			}
			mine := owner{device.Driver(), v}
			if _, known := owned[mine]; !known {
				owned[mine] = int32(len(owned))
				size, free = append(size, 0), append(free, 0)
			}
			groups[i], owners[i] = numbers[v], owned[mine]
			size[owners[i]]++
			if !s.allocated[i] {
				free[owners[i]]++
			}
		}
		t.groups, t.owners = append(t.groups, groups), append(t.owners, owners)
		t.size, t.free = append(t.size, size), append(t.free, free)
	}
	return t
}

// distance returns the number of levels at which two devices are in different groups.
func (t *topology) distance(a, b *pool.Device) int {
	apart := 0
	for _, groups := range t.groups {
		if groups[a.Index] != groups[b.Index] {
			apart++
		}
	}
	return apart
}

// added returns what the distance of all pairs grows by when slot i gets a device.
func (t *topology) added(chosen []choice, i int, device *pool.Device) (within, across int) {
	for j := range chosen {
		for _, other := range chosen[j].devices {
			if d := t.distance(device, other); i == j {
				within += d
			} else {
				across += d
			}
		}
	}
	return within, across
}

// fragments returns the fragments that a choice leaves.
func (t *topology) fragments(request *Request, chosen []choice) []int {
	all := make([]int, 0, 2*len(t.owners))
	for level := range t.owners {
		taken := map[int32]int{}
		for i := range chosen {
			if request.slots[i].alternatives[chosen[i].alternative].admin {
				continue // it takes nothing
			}
			for _, device := range chosen[i].devices {
				if group := t.owners[level][device.Index]; group >= 0 {
					taken[group]++
				}
			}
		}
		broken, remaining := 0, 0
		for group, n := range taken {
			free := t.free[level][group]
			remaining += free - n
			if free == t.size[level][group] && n < free {
				broken++
			}
		}
		all = append(all, broken, remaining)
	}
	return all
}

// cost returns the cost of a choice.
func (t *topology) cost(request *Request, chosen []choice) Cost {
	var c Cost
	before := make([]choice, len(chosen))
	for i := range chosen {
		for _, device := range chosen[i].devices {
			within, across := t.added(before, i, device)
			c.Within, c.Across = c.Within+within, c.Across+across
			before[i].devices = append(before[i].devices, device)
		}
	}
	c.Fragments = t.fragments(request, chosen)
	return c
}
