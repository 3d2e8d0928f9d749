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
	spots  []int             // of the nodes in the table, by their places in the snapshot's list; negative for a node that is not in it
	nodes  []*dispatch.Node  // the states in which they have answered, by their places
	latest *dispatch.Verdict // that of the node which was asked last
	unfit  int               // how many nodes are known not to fit
	cut    bool              // some answer was cut short

	// For the surveyor: when it took away, and what the places were.
	era, updates, layout uint64
}

// entry is a node of the snapshot and its answer, or nil for none. Nodes that say the same share a verdict.
type entry struct {
	nodeInfo *framework.NodeInfo
	place    int
	verdict  atomic.Pointer[dispatch.Verdict]
}

// fits reports whether the node fits, or has not answered.
func (e *entry) fits() bool {
	known := e.verdict.Load()
	return known == nil || known.Fits
}

// newSurvey returns a survey of these nodes, none of which has answered.
func newSurvey(nodes []fwk.NodeInfo) *survey {
	size := 4
	for size < 2*len(nodes) {
		size *= 2
	}
	s := &survey{table: make([]entry, size), spots: make([]int, len(nodes)), nodes: make([]*dispatch.Node, len(nodes))}
	for place, nodeInfo := range nodes {
		s.spots[place] = -1
		if known, ok := nodeInfo.(*framework.NodeInfo); ok {
			spot := s.spot(known)
			s.spots[place] = spot
			s.table[spot].nodeInfo, s.table[spot].place = known, place
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

// find returns the node's entry, or nil for a NodeInfo that is not of the snapshot: a copy that a simulation has changed.
func (s *survey) find(nodeInfo fwk.NodeInfo) *entry {
	known, ok := nodeInfo.(*framework.NodeInfo)
	if !ok {
		return nil
	}
	if at := &s.table[s.spot(known)]; at.nodeInfo != nil {
		return at
	}
	return nil
}

// note keeps the answer of a node in a state.
func (s *survey) note(at *entry, node *dispatch.Node, verdict *dispatch.Verdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.latest != nil && verdict.Same(s.latest) {
		verdict = s.latest
	} else {
		s.latest = verdict
	}
	s.cut = s.cut || verdict.Cut
	s.put(at, node, verdict)
}

// put replaces a node's answer; nil stands for none. The caller holds mu.
func (s *survey) put(at *entry, node *dispatch.Node, verdict *dispatch.Verdict) {
	before := at.verdict.Swap(verdict)
	s.nodes[at.place] = node
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

// at returns the entry and the state of the node at a place of the snapshot's list, when its answer is known. The caller holds mu.
func (s *survey) at(place int) (*entry, *dispatch.Node, bool) {
	if place >= len(s.spots) || s.spots[place] < 0 {
		return nil, nil, false
	}
	return &s.table[s.spots[place]], s.nodes[place], s.nodes[place] != nil
}
