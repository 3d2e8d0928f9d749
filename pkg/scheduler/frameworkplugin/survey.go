// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"unsafe"

	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/scheduler/dispatch"
)

// survey is what the nodes of the snapshot answer to pods that ask for the same. PreFilter takes
// away what does not stand any more, and Filter fills in what is not known. It is safe for
// concurrent use, and who reads it waits for nobody.
//
// Each pod makes the scheduler read and write more than a CPU's cache holds, so what looking at
// each node costs is what has to be fetched from memory. Filter, which is called for each node by
// itself, looks up only those that are in doubt. Who goes through all of them finds what is known
// in the order of the snapshot's list, all of one node together.
type survey struct {
	entries []entry // by the nodes' places in the snapshot's list
	table   []spot  // open addressing; its length is a power of two
	shift   int     // from a hash to the place in the table where to begin

	mu     sync.Mutex        // serialises writers, and guards what follows
	states []*dispatch.Node  // in which nodes have answered, by their places
	latest *dispatch.Verdict // that of the node which was asked last
	cut    bool              // some answer was cut short
	// The places of the nodes that are not known to fit: no answer is known, or it says that they
	// do not.
	unknown, unfit places

	// For the surveyor: when it took answers away, and what the places were.
	era, updates, layout uint64
}

// spot says where a node is.
type spot struct {
	key   uint32 // part of the node's hash
	place int32  // counted from 1; 0 where there is none
}

// entry is a node of the snapshot as it was when the cycle began, and its answer, or nil for none.
// Nodes that say the same share a verdict. nodeInfo is nil for one whose answers cannot be
// remembered.
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
		unknown: newPlaces(len(nodes)),
		unfit:   newPlaces(len(nodes)),
	}
	for place, nodeInfo := range nodes {
		s.unknown.put(place, true)
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

// hash goes by the NodeInfo's address, which stays: Go's collector moves nothing, and the snapshot
// lies on no stack.
func hash(nodeInfo *framework.NodeInfo) uint64 {
	const spread = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio: near addresses come to lie far apart
	return uint64(uintptr(unsafe.Pointer(nodeInfo))) * spread
}

// begin returns where in the table to begin to look for a node, and its key.
func (s *survey) begin(nodeInfo *framework.NodeInfo) (at int, key uint32) {
	h := hash(nodeInfo)
	return int(h >> s.shift), uint32(h)
}

// next returns where in the table to look after that.
func (s *survey) next(at int) int { return (at + 1) & (len(s.table) - 1) }

// find returns the place of a node of the snapshot. It is negative for any other NodeInfo, as a
// copy that a simulation has changed. It reads nothing of the NodeInfo, which would have to come
// from memory.
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

// finder is find for one who asks about nodes in nearly the order of the list: what Filter lets
// pass is put together from several stretches of it, one for each CPU. Most often it reads only
// what lies next to what it read last.
type finder struct {
	*survey
	lasts [2]int // the places found last, in two stretches
	older int    // the one of them that was not used last
}

func (f *finder) find(nodeInfo fwk.NodeInfo) (place int) {
	for i, last := range f.lasts {
		if next := last + 1; next < len(f.entries) && f.entries[next].nodeInfo == nodeInfo {
			f.lasts[i], f.older = next, 1-i
			return next
		}
	}
	place = f.survey.find(nodeInfo)
	f.lasts[f.older] = place
	f.older = 1 - f.older
	return place
}

// unlessChanged returns the place of a node, or a negative one if the node has changed since the
// cycle began.
func (s *survey) unlessChanged(place int) int {
	if place >= 0 && !s.entries[place].unchanged() {
		return -1
	}
	return place
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
	s.entries[place].verdict.Store(verdict)
	s.states[place] = state
	s.unknown.put(place, verdict == nil)
	s.unfit.put(place, verdict != nil && !verdict.Fits)
}

// countUnfit returns how many nodes are known not to fit.
func (s *survey) countUnfit() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unfit.count()
}

// doubtful returns the nodes that are not known to fit, or nil when they are more than so many.
func (s *survey) doubtful(most int) *fewNodes {
	s.mu.Lock()
	defer s.mu.Unlock()
	count := s.unknown.count() + s.unfit.count()
	if count > most {
		return nil
	}
	doubtful := &fewNodes{nodes: make(map[*framework.NodeInfo]struct{}, count)}
	for _, set := range []places{s.unknown, s.unfit} {
		for place := range set.all() {
			doubtful.add(s.entries[place].nodeInfo)
		}
	}
	return doubtful
}
