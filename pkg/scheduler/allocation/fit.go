// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"context"
	"math"

	"github.com/kubedevice/kubedevice/pkg/request"
)

// Fit returns whether the pod fits the node, and how well, according to every device scheduler
// whose devices it requests. An error means that one of them did not answer.
func (s *Set) Fit(ctx context.Context, node *Node, request *request.Request) (Verdict, error) {
	return s.FitWithin(ctx, node, request, nil)
}

// FitWithin is Fit within the budget of a cycle.
func (s *Set) FitWithin(ctx context.Context, node *Node, request *request.Request, budget *Budget) (Verdict, error) {
	if dropped := s.dropped(request, node.inventory); dropped != "" {
		return Verdict{Reasons: []string{dropped}, Unresolvable: true}, nil
	}
	t := s.partOf(request, node.inventory)
	if t.Empty() {
		return Verdict{Fits: true, NoDevices: true}, nil
	}
	var total float64
	var voters int
	var cut bool
	var quality float64
	within := s.rationed(budget)
	for _, plugin := range s.plugins {
		if !plugin.mayConcern(node.inventory, t) {
			continue
		}
		answer, err := plugin.cachedFit(ctx, node, request, t, within)
		if err != nil {
			return Verdict{}, err
		}
		if answer == nil {
			return s.notSearched(within), nil
		}
		if !answer.fits {
			return Verdict{Reasons: answer.reasons, Unresolvable: answer.unresolvable}, nil
		}
		t = answer.next
		if plugin.scores(answer.score) {
			total += unit(answer.score)
			voters++
		}
	}
	if err := node.missingFor(t); err != nil {
		return Verdict{}, err
	}
	fitting := placed{translation: t}
	left := s.remainder(t)
	switch {
	case left.err != nil:
		return Verdict{}, left.err
	case left.unserved != "":
		return Verdict{Reasons: []string{left.unserved}, Unresolvable: true}, nil
	case left.noDevices:
		return Verdict{Fits: true, NoDevices: true}, nil
	case left.request != nil:
		placement := s.groupScheduler.place(ctx, node, left.request, within)
		if placement == nil {
			return s.notSearched(within), nil
		}
		if !placement.Fits {
			reason := s.groupScheduler.explain(node, left.request, placement, within)
			return Verdict{
				Shortage: reason, Unresolvable: unresolvable(reason),
				LimitHit: placement.LimitHit, TimedOut: placement.TimedOut,
			}, nil
		}
		best, err := s.refine(ctx, node, request, placed{t, left.request, placement, 0}, within)
		if err != nil {
			return Verdict{}, err
		}
		total += unit(best.placement.Score)
		voters++
		cut, quality = best.placement.LimitHit, best.quality
		fitting = best
	}
	if err := node.checkSize(fitting); err != nil {
		return Verdict{Reasons: []string{err.Error()}, Unresolvable: true, TooLarge: true}, nil
	}
	return Verdict{Fits: true, Score: total / float64(max(1, voters)), Quality: quality, LimitHit: cut}, nil
}

// notSearched returns the verdict on a node for which the budget has nothing left.
func (s *Set) notSearched(within rationed) Verdict {
	within.refuse()
	s.groupScheduler.recorder.NotSearched()
	return Verdict{NotSearched: true}
}

// unit limits a plugin's score to the range from 0 to 1. NaN counts as 0.
func unit(score float64) float64 {
	if math.IsNaN(score) {
		return 0
	}
	return min(max(score, 0), 1)
}
