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

// Gap is how much later than the first the second patch of a change is. The kubelet and the scheduler hear of the first by their
// watches, within milliseconds as a rule. What the kubelet has seen it shows only when it makes the allocatable resources from the
// capacity, every ten seconds, which is too late: with the second that it may take to notice a change, all of it is published
// within two seconds.
const Gap = 750 * time.Millisecond

// enumScorer is the scorer that makes any resource a bit mask, whatever its name; see types.ResourceScorer.
const enumScorer = 2

// steps turns what is wanted of a node into what is to be shown at each moment: of a device as little as was wanted at any time
// in the last Gap, of an extended resource as much. It belongs to one goroutine.
type steps struct {
	// shown is what was wanted and shown of late, oldest first; the last still is. It is never empty.
	shown []step
}

// step is what was wanted for some time.
type step struct {
	allocatable types.ResourceList // as in the annotation
	counts      map[corev1.ResourceName]int64
	until       time.Time // zero in the last step
}

// newSteps starts from a node as it was found.
func newSteps(found step) *steps { return &steps{shown: []step{found}} }

// next returns what is to be shown while w is wanted.
func (s *steps) next(now time.Time, w wanted) wanted {
	s.shown = slices.DeleteFunc(s.shown, func(p step) bool { return !p.until.IsZero() && !now.Before(p.until.Add(Gap)) })
	shown := wanted{info: w.info.Clone(), counts: maps.Clone(w.counts)}
	for _, past := range s.shown {
		for name, quantity := range shown.info.Allocatable {
			shown.info.Allocatable[name] = least(w.info, name, quantity, past.allocatable[name])
		}
		for name, count := range past.counts {
			if count > shown.counts[name] {
				shown.counts[name] = count
			}
			// Whose count it is must be known as long as it is there.
			if _, listed := shown.info.Capacity[types.ResourceName(name)]; !listed && count > 0 {
				shown.info.Capacity[types.ResourceName(name)] = 0
			}
		}
	}
	return shown
}

// least returns what both have of a resource of the node.
func least(node *types.NodeInfo, name types.ResourceName, a, b int64) int64 {
	if resource.IsEnumResource(name) || node.Scorer[name] == enumScorer {
		return a & b
	}
	return min(a, b)
}

// done notes that what next returned for w is shown, and returns when next is to be asked again, or the zero time if all of w is
// shown.
func (s *steps) done(now time.Time, w wanted) time.Time {
	last := &s.shown[len(s.shown)-1]
	if !maps.Equal(last.allocatable, w.info.Allocatable) || !maps.Equal(last.counts, w.counts) {
		last.until = now
		s.shown = append(s.shown, step{allocatable: w.info.Allocatable, counts: w.counts})
	}
	if len(s.shown) == 1 {
		return time.Time{}
	}
	return s.shown[0].until.Add(Gap)
}
