// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"sync"
	"sync/atomic"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
)

// reasonAggregator gives nodes with the same kind of shortage the same text, although their numbers
// differ: upstream groups the nodes of an event by the text of their reasons. The numbers are those
// of the node that is nearest to what the pod needs.
//
// The text of a reason is made when it is read, not when Filter returns it: upstream reads the
// reasons after it has filtered all nodes. So no node waits for another, and a pod that is placed
// costs no text at all.
type reasonAggregator struct {
	displayNames devicescheduler.Words
	// outer is the aggregator of the cycle, for that of its simulations: of preemption, and of
	// nodes with nominated pods.
	outer *reasonAggregator

	// latest is the shortage that was reported last. Most nodes with a shortage look alike, and so
	// share it.
	latest atomic.Pointer[shortage]

	mu        sync.Mutex
	nearest   map[grouptree.Reason]*grouptree.Reason // by kind
	simulated *reasonAggregator
}

func newReasonAggregator(displayNames devicescheduler.Words, outer *reasonAggregator) *reasonAggregator {
	return &reasonAggregator{displayNames: displayNames, outer: outer,
		nearest: map[grouptree.Reason]*grouptree.Reason{}}
}

// status returns the status of a node with this shortage.
func (a *reasonAggregator) status(code fwk.Code, reason *grouptree.Reason) *fwk.Status {
	reported := a.latest.Load()
	if reported == nil || reported.reason != reason {
		reported = &shortage{a, reason, reason.Kind()}
		a.add(reported)
		a.latest.Store(reported)
	}
	return fwk.NewStatus(code).WithError(reported)
}

func (a *reasonAggregator) add(reported *shortage) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if best := a.nearest[reported.kind]; best == nil || reported.reason.Nearer(best) {
		a.nearest[reported.kind] = reported.reason
	}
}

// simulation returns the aggregator that all simulations of the cycle share. Their reasons do not
// count for the cycle's own nodes.
func (a *reasonAggregator) simulation() *reasonAggregator {
	if a.outer != nil {
		return a
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.simulated == nil {
		a.simulated = newReasonAggregator(a.displayNames, a)
	}
	return a.simulated
}

// nearestReason returns the reason of the node that is nearest to what is needed, or nil when there
// is none of that kind.
func (a *reasonAggregator) nearestReason(kind grouptree.Reason) *grouptree.Reason {
	var best *grouptree.Reason
	for ; a != nil; a = a.outer {
		a.mu.Lock()
		if here := a.nearest[kind]; best == nil || here != nil && here.Nearer(best) {
			best = here
		}
		a.mu.Unlock()
	}
	return best
}

// shortage is the reason of nodes with the same kind of shortage, as an error that has their common
// text.
type shortage struct {
	reasons *reasonAggregator
	reason  *grouptree.Reason
	kind    grouptree.Reason
}

// Error returns what all nodes of the kind report at this moment.
func (s *shortage) Error() string {
	text := s.reasons.nearestReason(s.kind).Text(s.reasons.displayNames)
	if s.kind.Cause == grouptree.Unknown {
		text += " (--device-search-budget)"
	}
	return text
}
