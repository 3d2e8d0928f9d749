// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"hash/crc32"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/cache"
	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/request"
)

// SearchBudgets bound what the search for devices costs. Both are counted in steps first, so that
// the same cluster gives the same answers on every machine, and in time for a machine on which
// steps take longer: a step counts as 12.5 ns, twice of what it usually takes.
type SearchBudgets struct {
	// Node is for one pod on one node.
	Node time.Duration
	// Cycle is for one pod on all nodes together, on top of what ordinary requests cost.
	Cycle time.Duration
	// StepsOnly leaves the clock out, so that no answer depends on the machine.
	StepsOnly bool
}

// DefaultSearchBudgets are those of a scheduler without flags for them.
var DefaultSearchBudgets = SearchBudgets{Node: 5 * time.Millisecond, Cycle: 80 * time.Millisecond}

const (
	// stepsPerMillisecond is how many steps count as a millisecond.
	stepsPerMillisecond = grouptree.DefaultStepLimit / 5

	// freeSteps on a node cost the budget of the cycle nothing, and are taken also when nothing is
	// left of it, until the cycle has taken freeInCycle of them, which count as 40 ms. An ordinary
	// request for all GPUs of a machine takes 600 on a node, and so no more on 5,000 of them: it is
	// never refused because of others.
	freeSteps, freeInCycle = 2_000, 3_200_000

	// share is which part of the time the searches of all pods together may take, in the long run;
	// reserve is how many cycles can use their whole budget before that begins to count. So no
	// number of pods takes more than this, and the free steps of their cycles, from pods without
	// devices.
	share, reserve = 0.05, 8

	// budgetEntries is for how many requests it is known which nodes were not searched.
	budgetEntries = 1 << 10
)

func stepsIn(d time.Duration) int64 {
	return d.Nanoseconds() * stepsPerMillisecond / int64(time.Millisecond)
}

// searches has the budgets of all cycles. It is safe for concurrent use, once the budgets are set.
type searches struct {
	clock   clock.PassiveClock
	budgets SearchBudgets
	wall    time.Duration                      // for one search, by the machine's clock; 0 for none
	cycles  *cache.Cache[request.Key, *Budget] // the last one for a request

	mu     sync.Mutex
	left   int64 // steps for all cycles to come
	filled time.Time
}

func newSearches(clk clock.PassiveClock, budgets SearchBudgets) *searches {
	wall := budgets.Node
	if budgets.StepsOnly {
		wall = 0
	}
	return &searches{
		clock: clk, budgets: budgets, wall: wall, cycles: cache.New[request.Key, *Budget](budgetEntries),
		left: reserve * stepsIn(budgets.Cycle), filled: clk.Now(),
	}
}

// refill returns what is left for the cycles to come.
func (s *searches) refill() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	more := time.Duration(float64(now.Sub(s.filled)) * share)
	s.left = min(s.left+stepsIn(more), reserve*stepsIn(s.budgets.Cycle))
	s.filled = now
	return s.left
}

func (s *searches) spend(steps int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left -= steps
}

// Budget is what the searches for one pod may cost in one scheduling cycle. It is safe for
// concurrent use. What is searched when it is used up is searched to the end: with 16 workers, 15
// nodes more.
//
// Of a pod that is tried again, the nodes that were searched are known, as long as they do not
// change, and the budget is for the others. Of nodes that do change, it is for a part, and for
// another part in the next try, so that not the same ones come first each time.
type Budget struct {
	searches *searches
	parent   *Budget // of the cycle, for the budget of a simulation

	free               *atomic.Int64 // steps left that cost nothing
	refining           *Budget       // for refinements: free steps alone
	steps, nanoseconds atomic.Int64  // left
	spent              atomic.Int64  // steps
	searched, refused  atomic.Int64  // nodes
	parts, try         uint32        // one of so many parts of the nodes is searched, another one in each try
}

// follow makes the budget that of the cycle after another one for the same request.
func (b *Budget) follow(last *Budget) {
	searched, refused := last.searched.Load(), last.refused.Load()
	if refused == 0 {
		return
	}
	b.parts, b.try = uint32(1+refused/max(1, searched)), last.try+1
	if !last.UsedUp() { // a smaller part than necessary
		b.parts = max(1, min(b.parts, last.parts/2))
	}
}

// Simulation returns the budget of one simulation of evictions, which asks about one node again and
// again: for each pod that may go, and all of that may cost as much as a node. It charges this one,
// too, and shares its free steps. A simulation in which a search was refused must be given up: what
// is not searched would count as a pod that has to go.
func (b *Budget) Simulation() *Budget {
	one := &Budget{searches: b.searches, parent: b, parts: 1, free: b.free, refining: b.refining}
	one.steps.Store(stepsIn(b.searches.budgets.Node))
	one.nanoseconds.Store(int64(b.searches.budgets.Node))
	if b.searches.budgets.StepsOnly {
		one.nanoseconds.Store(math.MaxInt64)
	}
	return one
}

// UsedUp reports whether nothing is left.
func (b *Budget) UsedUp() bool {
	return b.steps.Load() <= 0 || b.nanoseconds.Load() <= 0 || b.parent != nil && b.parent.UsedUp()
}

// Spent returns how many steps were charged to the budget: 80,000 count as a millisecond.
func (b *Budget) Spent() int64 { return b.spent.Load() }

// Refused returns how many nodes were not searched: none without a budget.
func (b *Budget) Refused() int {
	if b == nil {
		return 0
	}
	return int(b.refused.Load())
}

// rationed is how much may be spent on nodes: within a budget, or with a nil one on each node by
// itself.
type rationed struct {
	*Budget
	limits grouptree.Limits // for one node
}

// admit returns what may be spent on a node now, and whether that is all that a node may cost. No
// steps are left when the cycle has used up also those that cost nothing.
func (r rationed) admit(node *Node) (limits grouptree.Limits, admitted bool) {
	b := r.Budget
	if b == nil || !b.UsedUp() && b.isInPart(node.info.Name) {
		return r.limits, true
	}
	return grouptree.Limits{Steps: int(min(freeSteps, max(0, b.free.Load())))}, false
}

// isInPart reports whether a node is of the part that is searched in this cycle. Which those are is
// as good as random, and other ones in each cycle.
func (b *Budget) isInPart(node string) bool {
	return b.parts == 1 || crc32.Update(b.try*0x9e3779b9, crc32.IEEETable, []byte(node))*0x85ebca6b>>16%b.parts == 0
}

// forRefinement is how much may be spent on the better devices of nodes that a pod fits: as much in
// a cycle as fitting costs without charge, and nothing beyond.
func (r rationed) forRefinement() rationed {
	if r.Budget != nil {
		r.Budget = r.refining
	}
	return r
}

// charge notes what was spent on a node that was admitted or not. What costs nothing, and what was
// taken without being admitted, comes from the free steps of the cycle, as long as there are any.
func (r rationed) charge(steps int, took time.Duration, admitted bool) {
	b := r.Budget
	if b == nil || (steps <= freeSteps || !admitted) && b.free.Add(-int64(steps)) >= 0 {
		return
	}
	for charged := b; charged != nil; charged = charged.parent {
		charged.searched.Add(1)
		charged.steps.Add(-int64(steps))
		charged.spent.Add(int64(steps))
		charged.nanoseconds.Add(-int64(took))
	}
	b.searches.spend(int64(steps))
}

// refuse notes that a node was not searched.
func (r rationed) refuse() { r.refused.Add(1) }
