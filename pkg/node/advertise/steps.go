// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package advertise

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Gap is the delay between the two patches of a change. The kubelet and the scheduler receive the
// first one by their watches, usually within milliseconds. With the second that noticing a change
// may take, all of it is published within two seconds. Waiting until the kubelet's own status shows
// the first patch would take up to ten.
const Gap = 750 * time.Millisecond

// enumScorer is the scorer that makes any resource a bit mask, under any name; see
// types.ResourceScorer.
const enumScorer = 2

// steps derives what to publish now from what is wanted: of a device the least that was wanted at
// any time in the last Gap, of an extended resource the most. It belongs to one goroutine.
type steps struct {
	// shown is what was wanted and published in the last Gap, oldest first; the last one still is.
	// It is never empty.
	shown []step
}

// step is what was wanted for some time.
type step struct {
	allocatable types.ResourceList // as in the annotation
	counts      map[corev1.ResourceName]int64
	parts       map[corev1.ResourceName]int64
	until       time.Time // zero in the last step
}

// newSteps starts from a node as it was found.
func newSteps(found step) *steps { return &steps{shown: []step{found}} }

// next returns what to publish while w is wanted.
func (s *steps) next(now time.Time, w wanted) wanted {
	s.shown = slices.DeleteFunc(s.shown, func(p step) bool {
		return !p.until.IsZero() &&
			!now.Before(p.until.Add(Gap))
	})
	shown := wanted{info: w.info.Clone(), counts: maps.Clone(w.counts), parts: maps.Clone(w.parts)}
	for _, past := range s.shown {
		for name, quantity := range shown.info.Allocatable {
			shown.info.Allocatable[name] = commonQuantity(w.info, name, quantity, past.allocatable[name])
		}
		for name, count := range past.counts {
			if count > shown.counts[name] {
				shown.counts[name] = count
			}
			// The annotation must list a count for as long as it is published.
			if _, listed := shown.info.Capacity[types.ResourceName(name)]; !listed && count > 0 {
				shown.info.Capacity[types.ResourceName(name)] = 0
			}
		}
		for name, count := range past.parts {
			shown.parts[name] = max(shown.parts[name], count)
		}
	}
	return shown
}

// commonQuantity returns what two quantities of a resource have in common.
func commonQuantity(node *types.NodeInfo, name types.ResourceName, a, b int64) int64 {
	if resource.IsEnumResource(name) || node.Scorer[name] == enumScorer {
		return a & b
	}
	return min(a, b)
}

// done records that what next returned for w is published, and returns when to call next again, or
// the zero time if all of w is published.
func (s *steps) done(now time.Time, w wanted) time.Time {
	last := &s.shown[len(s.shown)-1]
	if !maps.Equal(last.allocatable, w.info.Allocatable) || !maps.Equal(last.counts, w.counts) ||
		!maps.Equal(last.parts, w.parts) {
		last.until = now
		s.shown = append(s.shown, step{allocatable: w.info.Allocatable, counts: w.counts, parts: w.parts})
	}
	if len(s.shown) == 1 {
		return time.Time{}
	}
	return s.shown[0].until.Add(Gap)
}
