// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/kubedevice/kubedevice/pkg/truncate"
)

// selectorBytes bounds a selector in a text.
const selectorBytes = 100

// Holders describes who holds devices.
type Holders interface {
	// Describe returns the holders of these devices in few words, "" if it knows none.
	Describe(devices []structured.DeviceID) string
}

// NoAllocation says why there is no allocation on a node.
type NoAllocation struct {
	request *Request
	// short has, for each alternative of the slot that cannot be served even alone, why. It is nil
	// if each slot can.
	slot  int
	short []shortfall
}

// cause is why an alternative cannot be served.
type cause byte

// The causes.
const (
	noneThere cause = 'n' // the node has no device of the class
	fewMatch  cause = 'm' // too few match, free or not
	taken     cause = 't' // enough match, and too few of them are free
	tainted   cause = 'x' // enough of them are free, and too few have no taint that matters
)

// shortfall is why an alternative cannot be served on a node, in numbers of devices.
type shortfall struct {
	cause       cause
	there, free int   // of the class
	matched     []int // of the class, by each selector of the request
	matching    int   // of the class, by all of these
	intolerable int   // of those that match and are free: they have taints
	held        []structured.DeviceID
	missing     int // how many more the node needs
}

// shortage returns why a request cannot be served even alone, or nil.
func (s *search) shortage() *NoAllocation {
slots:
	for i := range s.request.slots {
		for a := range s.request.slots[i].alternatives {
			if s.possible(i, a) {
				continue slots
			}
		}
		none := &NoAllocation{request: s.request, slot: i}
		for a := range s.request.slots[i].alternatives {
			none.short = append(none.short, s.shortfall(i, a))
		}
		return none
	}
	return nil
}

// explain returns why there is no allocation after all were tried.
func (s *search) explain() *NoAllocation {
	if none := s.shortage(); none != nil {
		return none
	}
	return &NoAllocation{request: s.request}
}

// shortfall counts devices for an alternative that cannot be served.
func (s *search) shortfall(slot, alternative int) shortfall {
	a, outcomes := &s.request.slots[slot].alternatives[alternative], s.of[slot][alternative].outcomes
	found := shortfall{matched: make([]int, len(a.selectors)-a.ofClass)}
	for i, device := range s.node.Devices {
		mismatches := func(known []outcome) bool { return known[i] != match }
		if slices.ContainsFunc(outcomes[:a.ofClass], mismatches) {
			continue
		}
		held := s.allocated[i] && !a.admin
		found.there++
		if !held {
			found.free++
		}
		for k, known := range outcomes[a.ofClass:] {
			if known[i] == match {
				found.matched[k]++
			}
		}
		if slices.ContainsFunc(outcomes[a.ofClass:], mismatches) {
			continue
		}
		found.matching++
		switch {
		case held:
			found.held = append(found.held, device.ID)
		case s.request.options.Features.DeviceTaints && !tolerated(device.Spec, a):
			found.intolerable++
		}
	}
	wanted := a.count
	if a.all {
		wanted = max(found.matching, 1)
	}
	usable := found.matching - len(found.held) - found.intolerable
	found.missing = wanted - usable
	switch {
	case found.there == 0:
		found.cause = noneThere
	case found.matching < wanted:
		found.cause = fewMatch
	case found.matching-len(found.held) < wanted:
		found.cause = taken
	default:
		found.cause = tainted
	}
	return found
}

// Kind returns a text that is the same for nodes with the same cause. Their numbers may differ.
func (e *NoAllocation) Kind() string {
	if e.short == nil {
		return ""
	}
	kind := fmt.Sprint(e.slot)
	for i := range e.short {
		kind += string(e.short[i].cause)
	}
	return kind
}

// Nearer reports whether a node is nearer to what the pod needs than another one of the same kind:
// it misses fewer devices for one of the alternatives, or else has more free ones.
func (e *NoAllocation) Nearer(than *NoAllocation) bool {
	missing, free := e.lacks()
	otherMissing, otherFree := than.lacks()
	return missing < otherMissing || missing == otherMissing && free > otherFree
}

func (e *NoAllocation) lacks() (missing, free int) {
	for i := range e.short {
		if i == 0 || e.short[i].missing < missing {
			missing = e.short[i].missing
		}
		free += e.short[i].free
	}
	return missing, free
}

// Error implements error. It names no holders.
func (e *NoAllocation) Error() string { return e.Text(nil) }

// Text returns why, as it follows the number of nodes in an event. holders may be nil.
func (e *NoAllocation) Text(holders Holders) string {
	if e.short == nil {
		return "have devices for each request of the claims, but " + e.request.together()
	}
	slot := &e.request.slots[e.slot]
	var parts []string
	for i := range e.short {
		part := e.short[i].text(&slot.alternatives[i], holders)
		if slot.first {
			part = fmt.Sprintf("alternative %q: %s", slot.alternatives[i].name, part)
		}
		parts = append(parts, part)
	}
	return fmt.Sprintf("have too few devices for request %q of claim %q (%s)", slot.name,
		e.request.claims[slot.claim], strings.Join(parts, "; "))
}

// together says what no choice of devices for all requests does.
func (r *Request) together() string {
	var parts []string
	for _, c := range r.constraints {
		text := fmt.Sprintf("the same %s", c.attribute)
		if c.distinct {
			text = fmt.Sprintf("different %s", c.attribute)
		}
		if !slices.Contains(parts, text) {
			parts = append(parts, text)
		}
	}
	if len(parts) == 0 {
		return "not for all of them together"
	}
	return "no choice for all of them together that has " + strings.Join(parts, " and ")
}

// text returns the numbers of an alternative.
func (s *shortfall) text(a *alternative, holders Holders) string {
	wanted := fmt.Sprintf("%d of class %q", a.count, a.class)
	if a.all {
		wanted = fmt.Sprintf("all of class %q", a.class)
	}
	switch s.cause {
	case noneThere:
		return wanted + ", none there"
	case fewMatch:
		return fmt.Sprintf("%s, best: %d there, %d free%s", wanted, s.there, s.free, s.matches(a))
	}
	text := fmt.Sprintf("%s, best: %d free of %d", wanted, s.matching-len(s.held), s.matching)
	if len(s.matched) > 0 {
		text += " that match"
	}
	if s.intolerable > 0 {
		text += fmt.Sprintf(", %d with taints that it does not tolerate", s.intolerable)
	}
	if holders != nil && len(s.held) > 0 {
		if who := holders.Describe(s.held); who != "" {
			text += ", held by " + who
		}
	}
	return text
}

// matches returns how many devices of the class each selector of the request matches.
func (s *shortfall) matches(a *alternative) string {
	text := ""
	for i, expression := range a.selectors[a.ofClass:] {
		text += fmt.Sprintf(", %s `%s`", countMatches(s.matched[i]),
			truncate.Ellipsize(strings.Join(strings.Fields(expression.String()), " "), selectorBytes))
	}
	if len(s.matched) > 1 {
		text += fmt.Sprintf(", %s all", countMatches(s.matching))
	}
	return text
}

func countMatches(n int) string {
	if n == 1 {
		return "1 matches"
	}
	return fmt.Sprintf("%d match", n)
}
