// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"hash/maphash"
	"sync"
	"sync/atomic"

	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/scheduler/dispatch"
)

// survey is what the nodes of the snapshot answer to pods that ask for the same. PreFilter takes away what does not stand any
// more, and Filter fills in what is not known. It is safe for concurrent use, and who reads it waits for nobody.
//
// Each pod makes the scheduler read and write more than a CPU's cache holds, so what is not next to each other has to come from
// memory. Filter and Score are asked about each node: all that they need to know of one is in one entry of a table.
type survey struct {
	table []entry

	mu     sync.Mutex        // serialises writers, and guards what follows
	spots  []int             // where in the table nodes are, by their places in the snapshot's list; negative for one that is not
	states []*dispatch.Node  // in which they have answered, by their spots
	latest *dispatch.Verdict // that of the node which was asked last
	unfit  int               // how many nodes are known not to fit
	cut    bool              // some answer was cut short

	// For the surveyor: the request that was asked about last, when it took answers away, and what the places were.
	request              *dispatch.Request
	era, updates, layout uint64
}

// entry is a node of the snapshot and its answer, or nil for none. Nodes that say the same share a verdict.
type entry struct {
	nodeInfo *framework.NodeInfo
	verdict  atomic.Pointer[dispatch.Verdict]
}

// newSurvey returns a survey of these nodes, none of which has answered.
func newSurvey(nodes []fwk.NodeInfo) *survey {
	size := 4
	for size < 2*len(nodes) {
		size *= 2
	}
	s := &survey{table: make([]entry, size), spots: make([]int, len(nodes)), states: make([]*dispatch.Node, size)}
	for place, nodeInfo := range nodes {
		s.spots[place] = -1
		if known, ok := nodeInfo.(*framework.NodeInfo); ok {
			spot := s.spot(known)
			s.spots[place], s.table[spot].nodeInfo = spot, known
		}
	}
	return s
}

var surveySeed = maphash.MakeSeed()

// spot returns where in the table a node is, or would be.
func (s *survey) spot(nodeInfo *framework.NodeInfo) int {
	mask := len(s.table) - 1
	for spot := int(maphash.Comparable(surveySeed, nodeInfo)) & mask; ; spot = (spot + 1) & mask {
		if at := s.table[spot].nodeInfo; at == nodeInfo || at == nil {
			return spot
		}
	}
}

// find returns where in the table a node is. It is negative for a NodeInfo that is not of the snapshot: a copy that a simulation
// has changed.
func (s *survey) find(nodeInfo fwk.NodeInfo) (spot int) {
	known, ok := nodeInfo.(*framework.NodeInfo)
	if !ok {
		return -1
	}
	if spot = s.spot(known); s.table[spot].nodeInfo == nil {
		return -1
	}
	return spot
}

// verdict returns the answer of the node at a spot, or nil when it is not known.
func (s *survey) verdict(spot int) *dispatch.Verdict {
	if spot < 0 {
		return nil
	}
	return s.table[spot].verdict.Load()
}

// note keeps the answer of the node at a spot, and the state in which it gave it.
func (s *survey) note(spot int, state *dispatch.Node, verdict *dispatch.Verdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.latest != nil && verdict.Same(s.latest) {
		verdict = s.latest
	} else {
		s.latest = verdict
	}
	s.cut = s.cut || verdict.Cut
	s.put(spot, state, verdict)
}

// put replaces the answer of the node at a spot; nil stands for none. The caller holds mu.
func (s *survey) put(spot int, state *dispatch.Node, verdict *dispatch.Verdict) {
	before := s.table[spot].verdict.Swap(verdict)
	s.states[spot] = state
	if before != nil && !before.Fits {
		s.unfit--
	}
	if verdict != nil && !verdict.Fits {
		s.unfit++
	}
}

// countUnfit returns how many nodes are known not to fit.
func (s *survey) countUnfit() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unfit
}
