// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/scheduler/dispatch"
)

// Roster tells which nodes of the scheduler's snapshot are as they were: what Cache.Of looks up by name for one node, it
// compares by place in the snapshot's list, which is a few loads for each. It computes nothing. The zero value is not
// usable; it is not safe for concurrent use.
type Roster struct {
	cache  *Cache
	seen   []sighting
	places map[*framework.NodeInfo]int
}

// NewRoster returns an empty roster of the cache's nodes.
func (c *Cache) NewRoster() *Roster { return &Roster{cache: c} }

// Update takes over the list of the snapshot's nodes, and returns their places in it. The map is replaced when it changes,
// and may be kept. A copy of a NodeInfo has no place, nor has one that is not upstream's own.
func (r *Roster) Update(nodes []fwk.NodeInfo) (places map[*framework.NodeInfo]int) {
	moved := len(nodes) != len(r.seen)
	if moved {
		r.seen = make([]sighting, len(nodes))
	}
	for i, nodeInfo := range nodes {
		at := &r.seen[i]
		moved = moved || at.nodeInfo != nodeInfo
		if !at.stands(nodeInfo) {
			*at = r.cache.sight(nodeInfo)
		}
	}
	if moved {
		r.places = make(map[*framework.NodeInfo]int, len(nodes))
		for i, nodeInfo := range nodes {
			if known, ok := nodeInfo.(*framework.NodeInfo); ok {
				r.places[known] = i
			}
		}
	}
	return r.places
}

// At returns the devices of the node at a place of the list, as Cache.Of would return them for a pod that holds nothing, or
// nil where they would have to be computed or differ from pod to pod.
func (r *Roster) At(place int) *dispatch.Node { return r.seen[place].devices }

// sighting is a node of the snapshot, and all from which its state was derived.
type sighting struct {
	nodeInfo   fwk.NodeInfo
	generation int64
	pods       int
	node       *node
	inventory  *inventory
	reserved   *reservations
	devices    *dispatch.Node // nil for a sighting that is not to be relied on
}

// stands reports whether nothing has changed since. See memoKey for what the generation does not tell.
func (s *sighting) stands(nodeInfo fwk.NodeInfo) bool {
	return s.devices != nil && s.nodeInfo == nodeInfo && s.generation == nodeInfo.GetGeneration() && s.pods == len(nodeInfo.GetPods()) &&
		s.inventory == s.node.inventory.Load() && s.reserved == s.node.reserved.Load()
}

// sight looks up what was computed last for a node of the snapshot, if that is its state now.
func (c *Cache) sight(nodeInfo fwk.NodeInfo) sighting {
	s := sighting{nodeInfo: nodeInfo, generation: nodeInfo.GetGeneration(), pods: len(nodeInfo.GetPods())}
	s.node, s.inventory = c.covering(nodeInfo.Node())
	if s.node == nil || s.inventory.err != nil || !s.inventory.retryAt.IsZero() {
		return s
	}
	s.reserved = s.node.reserved.Load()
	last := s.node.last.Load()
	if last == nil || last.key != keyOf(nodeInfo, s.node.reservations(), s.inventory) || len(last.nominated) > 0 || s.reserved.uncertain() {
		return s
	}
	s.devices = last.devices
	return s
}
