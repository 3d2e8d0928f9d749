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

// surveys is for how many kinds of pods the answers of all nodes are remembered. Each takes 8 bytes for each node, and some
// 100 more for each that has answered.
const surveys = 32

// answer is what one pod's request came to on a node in one state. It is immutable.
type answer struct {
	node *dispatch.Node
	dispatch.Verdict
}

// survey is what the nodes of the snapshot answer in one pod's cycle, by their places in its list. PreFilter begins it with
// what pods that ask for the same were answered before, and Filter fills it in. It is safe for concurrent use.
type survey struct {
	places  map[*framework.NodeInfo]int
	answers []atomic.Pointer[answer]
}

// slot returns where the node's answer is, or nil for a NodeInfo that is not of the snapshot: a copy that a simulation has
// changed.
func (s *survey) slot(nodeInfo fwk.NodeInfo) *atomic.Pointer[answer] {
	if known, ok := nodeInfo.(*framework.NodeInfo); ok {
		if place, ok := s.places[known]; ok {
			return &s.answers[place]
		}
	}
	return nil
}

// surveyor remembers surveys. From one pod to the next, hardly a node of a cluster changes: so most answers are those of the
// pod before, and finding that out for all nodes at once costs less than asking one of them.
type surveyor struct {
	schedulers *dispatch.Set

	mu     sync.Mutex
	roster *nodestate.Roster
	kinds  *lru.Cache // of *surveyed, by the digest of the request
}

// surveyed are the answers to one request, in one era. Its answers are those of the survey that was begun last.
type surveyed struct {
	era     uint64
	answers []atomic.Pointer[answer]
}

func newSurveyor(schedulers *dispatch.Set, nodes *nodestate.Cache) *surveyor {
	return &surveyor{schedulers: schedulers, roster: nodes.NewRoster(), kinds: lru.New(surveys)}
}

// begin returns the survey of these nodes, which are the snapshot's, for a pod.
func (s *surveyor) begin(nodes []fwk.NodeInfo, request *dispatch.Request) *survey {
	s.mu.Lock()
	defer s.mu.Unlock()
	begun := &survey{places: s.roster.Update(nodes), answers: make([]atomic.Pointer[answer], len(nodes))}
	era, ok := s.schedulers.Era()
	if !ok {
		return begun
	}
	digest := s.schedulers.Digest(request)
	if last, ok := s.kinds.Get(digest); ok && last.(*surveyed).era == era {
		s.recall(begun, last.(*surveyed))
	}
	s.kinds.Add(digest, &surveyed{era, begun.answers})
	return begun
}

// recall takes over the answers of nodes that have not changed.
func (s *surveyor) recall(begun *survey, last *surveyed) {
	for place := range min(len(begun.answers), len(last.answers)) {
		known := last.answers[place].Load()
		if known != nil && known.node == s.roster.At(place) && !known.Cut {
			begun.answers[place].Store(known)
		}
	}
}
