// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"sync"
	"sync/atomic"
	"unsafe"

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

// entry is a node of the snapshot as it was when the cycle began, and its answer, or nil for none. Nodes that say the same share a
// verdict.
type entry struct {
	nodeInfo   *framework.NodeInfo
	generation int64
	pods       int
	verdict    atomic.Pointer[dispatch.Verdict]
}

// see notes how the node is now.
func (e *entry) see(nodeInfo *framework.NodeInfo) {
	e.nodeInfo, e.generation, e.pods = nodeInfo, nodeInfo.Generation, len(nodeInfo.Pods)
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
			s.spots[place] = spot
			s.table[spot].see(known)
		}
	}
	return s
}

// spot returns where in the table a node is, or would be. It goes by the NodeInfo's address. The collector moves nothing; if it did,
// the node would be taken for a copy, which is slow and right.
func (s *survey) spot(nodeInfo *framework.NodeInfo) int {
	const spread = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio: near addresses come to lie far apart
	mask := len(s.table) - 1
	for spot := int(uint64(uintptr(unsafe.Pointer(nodeInfo)))*spread>>32) & mask; ; spot = (spot + 1) & mask {
		if at := s.table[spot].nodeInfo; at == nodeInfo || at == nil {
			return spot
		}
	}
}

// find returns where in the table a node is. It is negative for a NodeInfo that is not as the snapshot had it when the cycle began: a copy
// that a simulation has changed, or, in the preemption of a pod group, the snapshot's own.
func (s *survey) find(nodeInfo fwk.NodeInfo) (spot int) {
	known, ok := nodeInfo.(*framework.NodeInfo)
	if !ok {
		return -1
	}
	spot = s.spot(known)
	if at := &s.table[spot]; at.nodeInfo == nil || at.generation != known.Generation || at.pods != len(known.Pods) {
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
