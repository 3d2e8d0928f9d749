// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"fmt"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kubedevice/kubedevice/pkg/scheduler/claims/pool"
)

const (
	// allocateSteps bounds the devices that are tried for one pod on one node, about 5 ms.
	allocateSteps = 100_000
	// improveSteps bounds those that are tried for a better choice.
	improveSteps = 20_000
)

// Allocation is a choice of devices for each request of each claim.
type Allocation struct {
	request *Request
	// chosen has the alternative and the devices of each slot.
	chosen []choice
}

// choice is what one slot gets.
type choice struct {
	alternative int
	devices     []*pool.Device
}

// Devices returns the devices of all requests in the order of claims and requests.
func (a *Allocation) Devices() []*pool.Device {
	var all []*pool.Device
	for i := range a.chosen {
		all = append(all, a.chosen[i].devices...)
	}
	return all
}

// Score returns how early the alternatives are among those of their requests: the sum over all
// requests with alternatives, as upstream's plugin scores a node.
func (a *Allocation) Score() int64 {
	var score int64
	for i := range a.chosen {
		if a.request.slots[i].first {
			score += int64(resourceapi.FirstAvailableDeviceRequestMaxSize - a.chosen[i].alternative)
		}
	}
	return score
}

// RequestsAll reports whether a request, or an alternative of one, is for all devices of a node.
func (r *Request) RequestsAll() bool {
	for i := range r.slots {
		for a := range r.slots[i].alternatives {
			if r.slots[i].alternatives[a].all {
				return true
			}
		}
	}
	return false
}

// Results returns what each claim gets, in the order of the claims: the results that upstream's
// plugin is to write, with the names of requests, drivers, pools and devices alone.
func (a *Allocation) Results() [][]resourceapi.DeviceRequestAllocationResult {
	all := make([][]resourceapi.DeviceRequestAllocationResult, len(a.request.claims))
	for i := range a.chosen {
		s := &a.request.slots[i]
		name := s.name
		if s.first {
			name += "/" + s.alternatives[a.chosen[i].alternative].name
		}
		for _, device := range a.chosen[i].devices {
			all[s.claim] = append(all[s.claim], resourceapi.DeviceRequestAllocationResult{
				Request: name, Driver: device.Pool.ID.Driver, Pool: device.Pool.ID.Pool, Device: device.Spec.Name,
			})
		}
	}
	return all
}

// Allocate returns the allocation on a node that upstream's allocator finds. The error is
// *NoAllocation if there is none, and *ErrNotModelled if only upstream's allocator can decide.
func (r *Request) Allocate(ctx context.Context, node *pool.Node, allocated Allocated) (*Allocation, error) {
	s, err := r.search(ctx, node, allocated)
	if err != nil {
		return nil, err
	}
	return s.first()
}

// search is a search on one node.
type search struct {
	request   *Request
	node      *pool.Node
	allocated []bool // by the index of the device
	of        [][]candidates

	// used has a bit for each claim that has the device.
	used    []uint64
	counts  []int // devices of each claim
	tracked []tracked
	chosen  []choice

	kinds []int32 // of devices, see sameKind; nil before they are needed
	steps int
	err   error // which ends the search
}

func (r *Request) search(ctx context.Context, node *pool.Node, allocated Allocated) (*search, error) {
	s := &search{
		request: r, node: node, allocated: make([]bool, len(node.Devices)), used: make([]uint64, len(node.Devices)),
		counts: make([]int, len(r.claims)), tracked: make([]tracked, len(r.constraints)),
		chosen: make([]choice, len(r.slots)),
	}
	for i, device := range node.Devices {
		s.allocated[i] = allocated(device.ID)
	}
	return s, s.candidates(ctx)
}

// first returns the allocation that upstream's allocator finds first.
func (s *search) first() (*Allocation, error) {
	if err := s.checkLeast(); err != nil {
		return nil, err
	}
	if !s.request.constrainedAll {
		if none := s.shortage(); none != nil {
			return nil, none
		}
	}
	found := s.slot(0)
	switch {
	case s.err != nil:
		return nil, s.err
	case !found:
		return nil, s.explain()
	}
	return s.allocation(), nil
}

// allocation returns the current choice.
func (s *search) allocation() *Allocation {
	a := &Allocation{request: s.request, chosen: make([]choice, len(s.chosen))}
	for i := range s.chosen {
		a.chosen[i] = choice{
			alternative: s.chosen[i].alternative, devices: append([]*pool.Device(nil), s.chosen[i].devices...),
		}
	}
	return a
}

// needs returns how many devices an alternative needs.
func (s *search) needs(slot, alternative int) int {
	if a := &s.request.slots[slot].alternatives[alternative]; !a.all {
		return a.count
	}
	return len(s.of[slot][alternative].devices)
}

// possible reports whether an alternative has enough candidates.
func (s *search) possible(slot, alternative int) bool {
	a, c := &s.request.slots[slot].alternatives[alternative], &s.of[slot][alternative]
	if a.all {
		return !c.impossible && len(c.devices) > 0
	}
	return len(c.devices) >= a.count
}

// checkLeast returns an error if a claim would have more results than fit even with the smallest
// alternatives: upstream does so.
func (s *search) checkLeast() error {
	least := make([]int, len(s.request.claims))
	for i := range s.request.slots {
		smallest := s.needs(i, 0)
		for a := range s.request.slots[i].alternatives {
			smallest = min(smallest, s.needs(i, a))
		}
		claim := s.request.slots[i].claim
		if least[claim] += smallest; least[claim] > resourceapi.AllocationResultsMaxSize {
			return NotModelled(ReasonError, "claim %q needs more than %d devices", s.request.claims[claim],
				resourceapi.AllocationResultsMaxSize)
		}
	}
	return nil
}

// slot serves slot i and those after it.
func (s *search) slot(i int) bool {
	if i == len(s.request.slots) {
		return true
	}
	for a := range s.request.slots[i].alternatives {
		s.chosen[i].alternative = a
		if s.alternative(i) {
			return true
		}
		if s.err != nil {
			return false
		}
	}
	return false
}

// alternative serves slot i with its current alternative, and those after it.
func (s *search) alternative(i int) bool {
	slot := &s.request.slots[i]
	a := &slot.alternatives[s.chosen[i].alternative]
	c := &s.of[i][s.chosen[i].alternative]
	needed := s.needs(i, s.chosen[i].alternative)
	if needed > resourceapi.AllocationResultsMaxSize-s.counts[slot.claim] {
		return false
	}
	if !a.all {
		return len(c.devices) >= needed && s.some(i, needed, 0)
	}
	if len(c.devices) == 0 {
		return false
	}
	return s.all(i, 0)
}

// all serves slot i, which is for all devices, from candidate k on.
func (s *search) all(i, k int) bool {
	c := &s.of[i][s.chosen[i].alternative]
	if k == len(c.devices) {
		return s.slot(i + 1)
	}
	a := &s.request.slots[i].alternatives[s.chosen[i].alternative]
	device := c.devices[k]
	if !s.step() || !s.usable(i, device) || !a.admin && s.allocated[device.Index] ||
		s.request.options.Features.DeviceTaints && !tolerated(device.Spec, a) {
		return false
	}
	if !s.allowed(a, device) {
		s.err = NotModelled(ReasonError, "all devices are requested, and device %s is against a constraint", device.ID)
		return false
	}
	s.take(i, device)
	if s.all(i, k+1) {
		return true
	}
	s.release(i, device)
	return false
}

// some serves slot i with so many more of its candidates, from candidate k on.
func (s *search) some(i, needed, k int) bool {
	if needed == 0 {
		return s.slot(i + 1)
	}
	a := &s.request.slots[i].alternatives[s.chosen[i].alternative]
	devices := s.of[i][s.chosen[i].alternative].devices
	var failed []*pool.Device
	for ; k+needed <= len(devices); k++ {
		device := devices[k]
		if !s.usable(i, device) || !s.allowed(a, device) || s.hasSame(failed, device) {
			continue
		}
		if !s.step() {
			return false
		}
		s.take(i, device)
		if s.some(i, needed-1, k+1) {
			return true
		}
		s.release(i, device)
		if s.err != nil {
			return false
		}
		failed = append(failed, device)
	}
	return false
}

// step counts a device that is tried. It returns false when there have been too many.
func (s *search) step() bool {
	if s.steps++; s.steps <= allocateSteps {
		return true
	}
	s.err = NotModelled(ReasonBudget, "the search for devices takes too many steps")
	return false
}

// usable reports whether nothing that was chosen so far keeps slot i from a candidate.
func (s *search) usable(i int, device *pool.Device) bool {
	slot := &s.request.slots[i]
	if slot.alternatives[s.chosen[i].alternative].admin {
		return s.used[device.Index]&(1<<slot.claim) == 0
	}
	return s.used[device.Index] == 0
}

// allowed reports whether the constraints allow a device for an alternative.
func (s *search) allowed(a *alternative, device *pool.Device) bool {
	for _, c := range a.constraints {
		constraint := &s.request.constraints[c]
		if !s.tracked[c].allows(constraint, attribute(device, constraint.attribute)) {
			return false
		}
	}
	return true
}

// take gives a device to slot i.
func (s *search) take(i int, device *pool.Device) {
	slot := &s.request.slots[i]
	for _, c := range slot.alternatives[s.chosen[i].alternative].constraints {
		s.tracked[c] = append(s.tracked[c], attribute(device, s.request.constraints[c].attribute))
	}
	s.used[device.Index] |= 1 << slot.claim
	s.counts[slot.claim]++
	s.chosen[i].devices = append(s.chosen[i].devices, device)
}

// release undoes the last take.
func (s *search) release(i int, device *pool.Device) {
	slot := &s.request.slots[i]
	for _, c := range slot.alternatives[s.chosen[i].alternative].constraints {
		s.tracked[c] = s.tracked[c][:len(s.tracked[c])-1]
	}
	s.used[device.Index] &^= 1 << slot.claim
	s.counts[slot.claim]--
	s.chosen[i].devices = s.chosen[i].devices[:len(s.chosen[i].devices)-1]
}

// hasSame reports whether one of these devices is the same as another one in all that matters to
// the pod, now. Where a constraint concerns all devices, their order matters as well: upstream
// returns an error for the first that is against it, unless one before is not free.
func (s *search) hasSame(devices []*pool.Device, device *pool.Device) bool {
	if len(devices) == 0 || s.request.constrainedAll {
		return false
	}
	if s.kinds == nil {
		s.kinds = s.sameKind(nil)
	}
	for _, other := range devices {
		if s.kinds[other.Index] == s.kinds[device.Index] && s.used[other.Index] == s.used[device.Index] {
			return true
		}
	}
	return false
}

// sameKind numbers the kinds of devices: two of one kind are candidates of the same alternatives,
// have the same values of the attributes that constraints name, are both allocated or both not, and
// are in the same groups.
func (s *search) sameKind(groups [][]int32) []int32 {
	var text strings.Builder
	numbers, kinds := map[string]int32{}, make([]int32, len(s.node.Devices))
	isCandidate := make([][]bool, 0, len(s.of))
	for i := range s.of {
		for a := range s.of[i] {
			marks := make([]bool, len(s.node.Devices))
			for _, device := range s.of[i][a].devices {
				marks[device.Index] = true
			}
			isCandidate = append(isCandidate, marks)
		}
	}
	for i, device := range s.node.Devices {
		text.Reset()
		for _, marks := range isCandidate {
			fmt.Fprintf(&text, "%t", marks[i])
		}
		fmt.Fprintf(&text, " %t", s.allocated[i])
		for c := range s.request.constraints {
			v := attribute(device, s.request.constraints[c].attribute)
			fmt.Fprintf(&text, " %c%q%d", v.kind+1, v.text, v.n)
		}
		for _, of := range groups {
			// A device in a group of its own is as far from all others as any other such device.
			fmt.Fprintf(&text, " %d", max(of[i], -1))
		}
		key := text.String()
		if _, known := numbers[key]; !known {
			numbers[key] = int32(len(numbers))
		}
		kinds[i] = numbers[key]
	}
	return kinds
}
