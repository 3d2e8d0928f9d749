// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"sync"

	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/lru"

	"github.com/kubedevice/kubedevice/pkg/scheduler/dispatch"
	"github.com/kubedevice/kubedevice/pkg/scheduler/nodestate"
)

// surveys is for how many kinds of pods the answers of all nodes are remembered. Each takes up to
// 176 bytes for each node.
const surveys = 32

// surveyor remembers surveys. From one pod to the next, hardly a node of a cluster changes: so most
// answers are those of the pod before, and finding that out for all nodes at once costs less than
// asking one of them.
type surveyor struct {
	schedulers *dispatch.Set

	mu     sync.Mutex
	roster *nodestate.Roster
	kinds  *lru.Cache // of *survey, by the key of the request
}

func newSurveyor(schedulers *dispatch.Set, nodes *nodestate.Cache) *surveyor {
	return &surveyor{schedulers: schedulers, roster: nodes.NewRoster(), kinds: lru.New(surveys)}
}

// begin returns the survey of these nodes, which are the snapshot's, for a pod. Pods that are
// scheduled one after another, and ask for the same, share it.
func (s *surveyor) begin(nodes []fwk.NodeInfo, request *dispatch.Request) *survey {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.roster.Update(nodes)
	era, ok := s.schedulers.Era()
	if !ok {
		return newSurvey(nodes)
	}
	key := request.Key()
	last, _ := s.kinds.Get(key)
	begun, _ := last.(*survey)
	switch {
	case begun == nil || begun.era != era:
		begun = newSurvey(nodes)
	case begun.layout != s.roster.Layout():
		begun = s.resume(nodes, begun)
	default:
		s.revise(begun, nodes)
	}
	begun.era, begun.updates, begun.layout = era, s.roster.Updates(), s.roster.Layout()
	s.kinds.Add(key, begun)
	return begun
}

// revise takes away the answers of nodes that have changed, and those that were cut short: their
// search may come further the next time.
func (s *surveyor) revise(begun *survey, nodes []fwk.NodeInfo) {
	begun.mu.Lock()
	defer begun.mu.Unlock()
	changed := s.roster.ChangedSince(begun.updates)
	if begun.cut {
		changed = s.roster.Places()
	}
	for place := range changed {
		if known, ok := nodes[place].(*framework.NodeInfo); ok {
			begun.entries[place].see(known)
		}
		if known := begun.verdict(place); known != nil && (begun.states[place] != s.roster.At(place) || known.Cut) {
			begun.put(place, nil, nil)
		}
	}
	begun.cut = false
}

// resume begins a survey of another list of nodes, with what stands of the last.
func (s *surveyor) resume(nodes []fwk.NodeInfo, last *survey) *survey {
	begun := newSurvey(nodes)
	last.mu.Lock()
	defer last.mu.Unlock()
	for place, nodeInfo := range nodes {
		before := last.unlessChanged(last.find(nodeInfo))
		known := last.verdict(before)
		if known != nil && !known.Cut && last.states[before] == s.roster.At(place) {
			begun.put(place, last.states[before], known)
		}
	}
	return begun
}
