// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/scheduler/pluginhost"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
)

// Verdict is the answer of all device schedulers for one pod on one node.
type Verdict struct {
	// Fits says that all of them can serve the pod.
	Fits bool
	// Lack says what is missing on the node when it was the group scheduler who found that the pod
	// does not fit. It is nil otherwise.
	Shortage *grouptree.Reason
	// Reasons say why the pod does not fit, when a plugin found that, without the node's name:
	// events have them behind a number of nodes.
	Reasons []string
	// Never says, for a pod that does not fit, that it would not fit if the node were empty either.
	Never bool
	// Score says how well the pod fits, from 0 to 1: the mean over the schedulers that gave one.
	Score float64
	// Unconcerned says that nothing of what the pod requests is a device on the node: it fits as
	// far as devices are concerned, and has no score.
	Unconcerned bool
	// Cut says that a limit ended the search for devices, which Fit counts and logs each time.
	// TimedOut says that it was the limit of time: another time the search may get further.
	Cut, TimedOut bool
	// NotSearched says that there is no verdict: the pod neither fits at first sight, nor does
	// something obvious speak against it, and the budget of its cycle has nothing left for a
	// search.
	NotSearched bool
}

// Same reports whether two verdicts of the group scheduler are equal. It reports false for those of
// plugins.
func (v *Verdict) Same(other *Verdict) bool {
	return len(v.Reasons)+len(other.Reasons) == 0 && v.Fits == other.Fits && v.Shortage == other.Shortage &&
		v.Never == other.Never && v.Score == other.Score && v.Unconcerned == other.Unconcerned && v.Cut == other.Cut &&
		v.TimedOut == other.TimedOut
}

// Fit returns whether the pod fits the node, and how well, according to every device scheduler
// whose devices it requests. An error means that one of them did not answer.
func (s *Set) Fit(ctx context.Context, node *Node, request *request.Request) (Verdict, error) {
	return s.FitWithin(ctx, node, request, nil)
}

// FitWithin is Fit within the budget of a cycle.
func (s *Set) FitWithin(ctx context.Context, node *Node, request *request.Request, budget *Budget) (Verdict, error) {
	at := partOf(request, node.inventory)
	if at.Empty() {
		return Verdict{Fits: true, Unconcerned: true}, nil
	}
	var total float64
	var voters int
	var cut bool
	within := s.rationed(budget)
	for _, plugin := range s.plugins {
		if !plugin.concern(node.inventory, at) {
			continue
		}
		answer, err := plugin.cachedFit(ctx, node, request, at, within)
		if err != nil {
			return Verdict{}, err
		}
		if answer == nil {
			return s.notSearched(within), nil
		}
		if !answer.fits {
			return Verdict{Reasons: answer.reasons, Never: answer.never}, nil
		}
		at = answer.next
		if plugin.scores(answer.score) {
			total += unit(answer.score)
			voters++
		}
	}
	if err := node.missingFor(at); err != nil {
		return Verdict{}, err
	}
	left := s.rest(at)
	switch {
	case left.err != nil:
		return Verdict{}, left.err
	case left.unserved != "":
		return Verdict{Reasons: []string{left.unserved}, Never: true}, nil
	case left.request != nil:
		placement := s.groupScheduler.place(ctx, node, left.request, within)
		if placement == nil {
			return s.notSearched(within), nil
		}
		if !placement.Fits {
			reason := s.groupScheduler.explain(node, left.request, placement, within)
			return Verdict{
				Shortage: reason, Never: never(reason), Cut: placement.LimitHit, TimedOut: placement.TimedOut,
			}, nil
		}
		total += unit(placement.Score)
		voters++
		cut = placement.LimitHit
	}
	return Verdict{Fits: true, Score: total / float64(max(1, voters)), Cut: cut}, nil
}

// notSearched returns the verdict on a node for which the budget has nothing left.
func (s *Set) notSearched(within rationed) Verdict {
	within.refuse()
	s.groupScheduler.recorder.NotSearched()
	return Verdict{NotSearched: true}
}

// fitAnswer is one plugin's answer to PodFitsDevice.
type fitAnswer struct {
	fits    bool
	next    *translation // for one that fits
	reasons []string
	never   bool // it would not fit if the node were empty either
	score   float64
	steps   int  // of an allocator
	cut     bool // by the limit of steps of this call
}

func (h *handle) fit(
	ctx context.Context, node *Node, request *request.Request, at *translation, within rationed,
) (*fitAnswer, error) {
	call := &pluginhost.Call{Method: "PodFitsDevice", Subject: h.subject(node, request)}
	if h.allocator == nil {
		return pluginhost.Do(ctx, h.Plugin, call, h.podFits(node, at, request.Pod.Name, 0))
	}
	limits, admitted := within.admit(node)
	if !admitted && sizeSteps(at.size()) >= limits.Steps {
		return nil, nil
	}
	began := h.Clock.Now()
	answer, err := pluginhost.Do(ctx, h.Plugin, call, h.podFits(node, at, request.Pod.Name, limits.Steps))
	if err != nil {
		return nil, err
	}
	size := at.size()
	if answer.fits {
		size += answer.next.made()
	}
	within.charge(answer.steps+sizeSteps(size), h.Clock.Since(began), admitted)
	if answer.cut && !admitted {
		return nil, nil
	}
	return answer, nil
}

// podFits returns the call of PodFitsDevice for a pod on a node, for an allocator with a limit of
// steps.
func (h *handle) podFits(node *Node, at *translation, pod string, steps int) func() (*fitAnswer, error) {
	nodeInfo, given := h.infoFor(node), at.named(pod, "")
	return func() (*fitAnswer, error) {
		scheduler := h.schedulerOf(node, at, steps)
		fits, reasons, score := scheduler.PodFitsDevice(nodeInfo, given, h.allocator != nil)
		answer := &fitAnswer{fits: fits}
		if allocation, ok := scheduler.(Allocation); ok {
			answer.steps, answer.cut = allocation.Spent()
		}
		if fits {
			answer.next, answer.score = at.adopt(given, h.allocator != nil), score
		} else {
			answer.reasons, answer.never = h.texts(reasons), slices.ContainsFunc(reasons, isUnresolvable)
		}
		return answer, nil
	}
}

const (
	// stepsPerName is what a container, a name or an allocated device costs besides the search,
	// since each node has a translation of its own: it is copied and compiled.
	stepsPerName = 450
	// smallestSize costs nothing: that of a container that counts two devices. One that counts six
	// takes little less than freeSteps.
	smallestSize = 4
)

// sizeSteps returns what a request of a size costs an allocator besides the search.
func sizeSteps(size int) int { return stepsPerName * max(0, size-smallestSize) }

// maxReasons is how many reasons of a plugin become part of an event, which Kubernetes limits to
// 1024 bytes.
const maxReasons = 4

func isUnresolvable(reason devicescheduler.PredicateFailureReason) bool {
	unresolvable, ok := reason.(Unresolvable)
	return ok && unresolvable.Unresolvable()
}

func (h *handle) texts(reasons []devicescheduler.PredicateFailureReason) []string {
	var texts []string
	for _, reason := range reasons[:min(len(reasons), maxReasons)] {
		texts = append(texts, pluginhost.Clip(reason.GetReason()))
	}
	if len(texts) == 0 {
		texts = []string{fmt.Sprintf("device scheduler %q gives no reason", h.Name)}
	}
	return slices.Clip(texts) // cached, and given to callers who may append
}

// unit limits a plugin's score to the range from 0 to 1. NaN counts as 0.
func unit(score float64) float64 {
	if math.IsNaN(score) {
		return 0
	}
	return min(max(score, 0), 1)
}
