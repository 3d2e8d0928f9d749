// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"sync"
	"sync/atomic"

	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/lru"

	"github.com/kubedevice/kubedevice/pkg/scheduler/dispatch"
	"github.com/kubedevice/kubedevice/pkg/scheduler/nodestate"
)

// surveys is for how many kinds of pods the answers of all nodes are remembered. Each takes 24 bytes for each node.
const surveys = 32

// answer is what one pod's request came to on a node in one state. It is immutable, and small, as there is one for each node:
// nodes that say the same have the verdict in common.
type answer struct {
	node    *dispatch.Node
	verdict *dispatch.Verdict
}

// survey is what the nodes of the snapshot answer to pods that ask for the same, by their places in its list. PreFilter takes
// away what does not stand any more, and Filter fills in what is not known. It is safe for concurrent use.
type survey struct {
	places  map[*framework.NodeInfo]int
	answers []atomic.Pointer[answer]
	latest  atomic.Pointer[dispatch.Verdict] // that of the node which was asked last
	unfit   atomic.Int64                     // how many nodes are known not to fit
	cut     atomic.Bool                      // some answer was cut short

	// For the surveyor: when it took away, and what the places were.
	era, updates, layout uint64
}

// find returns the node's place, and its answer if that is known. The place is negative for a NodeInfo that is not of the snapshot:
// a copy that a simulation has changed.
func (s *survey) find(nodeInfo fwk.NodeInfo) (place int, known *answer) {
	if info, ok := nodeInfo.(*framework.NodeInfo); ok {
		if place, ok := s.places[info]; ok {
			return place, s.answers[place].Load()
		}
	}
	return -1, nil
}

// note keeps the answer of the node at a place.
func (s *survey) note(place int, node *dispatch.Node, verdict *dispatch.Verdict) {
	last := s.latest.Load()
	if last != nil && verdict.Same(last) {
		verdict = last
	} else {
		s.latest.Store(verdict)
	}
	if verdict.Cut {
		s.cut.Store(true)
	}
	s.put(place, &answer{node, verdict})
}

// put replaces the answer of the node at a place; nil stands for none.
func (s *survey) put(place int, now *answer) {
	before := s.answers[place].Swap(now)
	if after := now.unfit(); after != before.unfit() {
		if after {
			s.unfit.Add(1)
		} else {
			s.unfit.Add(-1)
		}
	}
}

// unfit reports whether the node is known not to fit.
func (a *answer) unfit() bool { return a != nil && !a.verdict.Fits }

// surveyor remembers surveys. From one pod to the next, hardly a node of a cluster changes: so most answers are those of the
// pod before, and finding that out for all nodes at once costs less than asking one of them.
type surveyor struct {
	schedulers *dispatch.Set

	mu     sync.Mutex
	roster *nodestate.Roster
	kinds  *lru.Cache // of *survey, by the digest of the request
}

func newSurveyor(schedulers *dispatch.Set, nodes *nodestate.Cache) *surveyor {
	return &surveyor{schedulers: schedulers, roster: nodes.NewRoster(), kinds: lru.New(surveys)}
}

// begin returns the survey of these nodes, which are the snapshot's, for a pod. Pods that are scheduled one after another, and ask
// for the same, share it.
func (s *surveyor) begin(nodes []fwk.NodeInfo, request *dispatch.Request) *survey {
	s.mu.Lock()
	defer s.mu.Unlock()
	begun := &survey{places: s.roster.Update(nodes), layout: s.roster.Layout()}
	era, ok := s.schedulers.Era()
	if !ok {
		begun.answers = make([]atomic.Pointer[answer], len(nodes))
		return begun
	}
	digest := s.schedulers.Digest(request)
	last, _ := s.kinds.Get(digest)
	known, _ := last.(*survey)
	switch {
	case known == nil || known.era != era:
		begun.answers = make([]atomic.Pointer[answer], len(nodes))
	case known.layout != begun.layout:
		begun.answers = make([]atomic.Pointer[answer], len(nodes))
		for place := range min(len(begun.answers), len(known.answers)) {
			begun.put(place, known.answers[place].Load())
		}
		s.revise(begun, 0)
	default:
		begun = known
		s.revise(begun, begun.updates)
	}
	begun.era, begun.updates = era, s.roster.Updates()
	s.kinds.Add(digest, begun)
	return begun
}

// revise takes away the answers of nodes that have changed since so many updates of the roster, and those that were cut short: their
// search may come further the next time.
func (s *surveyor) revise(begun *survey, updates uint64) {
	cut := begun.cut.Swap(false)
	for place := range begun.answers {
		if !cut && !s.roster.ChangedSince(place, updates) {
			continue
		}
		if known := begun.answers[place].Load(); known != nil && (known.node != s.roster.At(place) || known.verdict.Cut) {
			begun.put(place, nil)
		}
	}
}
