// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"math"
	"sync/atomic"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/request"
)

// SetSearchBudgets sets the budgets of the cycles to come. It must be called before any begins.
func (s *Set) SetSearchBudgets(budgets SearchBudgets) {
	s.searches = newSearches(s.searches.clock, budgets)
}

// BeginCycle returns the budget of a cycle for this request.
func (s *Set) BeginCycle(request *request.Request) *Budget {
	b := &Budget{searches: s.searches, parts: 1, free: &atomic.Int64{}}
	b.free.Store(freeInCycle)
	b.refining = &Budget{searches: s.searches, parts: 1, free: &atomic.Int64{}}
	b.refining.free.Store(freeInCycle)
	b.steps.Store(min(stepsIn(s.searches.budgets.Cycle), s.searches.refill()/2))
	b.nanoseconds.Store(int64(s.searches.budgets.Cycle))
	if s.searches.budgets.StepsOnly {
		b.nanoseconds.Store(math.MaxInt64)
	}
	if last, ok := s.searches.cycles.Get(request.Key()); ok {
		b.follow(last)
	}
	s.searches.cycles.Add(request.Key(), b)
	return b
}

// rationed returns how much may be spent within a budget, which may be nil.
func (s *Set) rationed(b *Budget) rationed {
	steps := int(stepsIn(s.searches.budgets.Node))
	return rationed{b, grouptree.Limits{Steps: steps, Time: s.searches.wall}}
}
