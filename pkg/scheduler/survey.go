// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"math/bits"
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
// Each pod makes the scheduler read and write more than a CPU's cache holds, and Filter and Score are asked about each node: what they
// cost is how much they have to fetch from memory. They are asked in about the order of the snapshot's list, so what is known of nodes lies
// in that order, all of one node together, and where a node is in it is looked up in a table that is small enough to stay.
type survey struct {
	entries []entry // by the nodes' places in the snapshot's list
	table   []spot  // open addressing; its length is a power of two
	shift   int     // from a hash to the place in the table where to begin

	mu     sync.Mutex        // serialises writers, and guards what follows
	states []*dispatch.Node  // in which nodes have answered, by their places
	latest *dispatch.Verdict // that of the node which was asked last
	unfit  int               // how many nodes are known not to fit
	cut    bool              // some answer was cut short

	// For the surveyor: the request that was asked about last, when it took answers away, and what the places were.
	request              *dispatch.Request
	era, updates, layout uint64
}

// spot says where a node is.
type spot struct {
	key   uint32 // part of the node's hash
	place int32  // counted from 1; 0 where there is none
}

// entry is a node of the snapshot as it was when the cycle began, and its answer, or nil for none. Nodes that say the same share a
// verdict. nodeInfo is nil for one whose answers cannot be remembered.
type entry struct {
	nodeInfo   *framework.NodeInfo
	generation int64
	pods       int
	verdict    atomic.Pointer[dispatch.Verdict]
}

// unchanged reports whether the node is as it was.
func (e *entry) unchanged() bool {
	return e.generation == e.nodeInfo.Generation && e.pods == len(e.nodeInfo.Pods)
}

// see notes how the node is now.
func (e *entry) see(nodeInfo *framework.NodeInfo) {
	e.nodeInfo, e.generation, e.pods = nodeInfo, nodeInfo.Generation, len(nodeInfo.Pods)
}

// newSurvey returns a survey of these nodes, none of which has answered.
func newSurvey(nodes []fwk.NodeInfo) *survey {
	width := bits.Len(uint(len(nodes) + len(nodes)/2))
	s := &survey{
		entries: make([]entry, len(nodes)),
		table:   make([]spot, 1<<width),
		shift:   64 - width,
		states:  make([]*dispatch.Node, len(nodes)),
	}
	for place, nodeInfo := range nodes {
		if known, ok := nodeInfo.(*framework.NodeInfo); ok {
			s.entries[place].see(known)
			at, key := s.begin(known)
			for s.table[at].place != 0 {
				at = s.next(at)
			}
			s.table[at] = spot{key, int32(place + 1)}
		}
	}
	return s
}

// begin returns where in the table to begin to look for a node, and its key. They go by the NodeInfo's address. The collector moves
// nothing; if it did, the node would be taken for a copy, which is slow and right.
func (s *survey) begin(nodeInfo *framework.NodeInfo) (at int, key uint32) {
	const spread = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio: near addresses come to lie far apart
	hash := uint64(uintptr(unsafe.Pointer(nodeInfo))) * spread
	return int(hash >> s.shift), uint32(hash)
}

// next returns where in the table to look after that.
func (s *survey) next(at int) int { return (at + 1) & (len(s.table) - 1) }

// find returns the place of a node of the snapshot. It is negative for any other NodeInfo, as a copy that a simulation has changed.
// It reads nothing of the NodeInfo, which would have to come from memory.
func (s *survey) find(nodeInfo fwk.NodeInfo) (place int) {
	known, ok := nodeInfo.(*framework.NodeInfo)
	if !ok {
		return -1
	}
	for at, key := s.begin(known); ; at = s.next(at) {
		there := s.table[at]
		if there.place == 0 {
			return -1
		}
		if place = int(there.place) - 1; there.key == key && s.entries[place].nodeInfo == known {
			return place
		}
	}
}

// findUnchanged is find for a node of the snapshot that may have changed since the cycle began. Then it is negative too.
func (s *survey) findUnchanged(nodeInfo fwk.NodeInfo) (place int) {
	if place = s.find(nodeInfo); place >= 0 && s.entries[place].unchanged() {
		return place
	}
	return -1
}

// verdict returns the answer of the node at a place, or nil when it is not known.
func (s *survey) verdict(place int) *dispatch.Verdict {
	if place < 0 {
		return nil
	}
	return s.entries[place].verdict.Load()
}

// note keeps the answer of the node at a place, and the state in which it gave it.
func (s *survey) note(place int, state *dispatch.Node, verdict *dispatch.Verdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.latest != nil && verdict.Same(s.latest) {
		verdict = s.latest
	} else {
		s.latest = verdict
	}
	s.cut = s.cut || verdict.Cut
	s.put(place, state, verdict)
}

// put replaces the answer of the node at a place; nil stands for none. The caller holds mu.
func (s *survey) put(place int, state *dispatch.Node, verdict *dispatch.Verdict) {
	before := s.entries[place].verdict.Swap(verdict)
	s.states[place] = state
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
