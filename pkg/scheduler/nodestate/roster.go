// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"cmp"
	"iter"
	"slices"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/scheduler/dispatch"
)

// Roster tells which nodes of the scheduler's snapshot are as they were: what Cache.Of looks up by
// name for one node, it compares by place in the snapshot's list. What has changed in the cache,
// the cache tells it; whether the snapshot's node has, takes a look at the NodeInfo, and that is
// nearly all that is done for each. It computes nothing. The zero value is not usable; it is not
// safe for concurrent use. A cache tells one roster.
type Roster struct {
	cache   *Cache
	seen    []sighting
	placeOf map[*node]int
	groups  bool // pods may be scheduled in groups

	updates, layout uint64
	// changes are the last looks, in their order: all since so many updates.
	changes []change
	since   uint64
}

// change says in which update a node was looked at anew.
type change struct {
	update uint64
	place  int
}

// NewRoster returns an empty roster of the cache's nodes.
func (c *Cache) NewRoster() *Roster {
	return &Roster{cache: c, placeOf: map[*node]int{}, groups: utilfeature.DefaultFeatureGate.Enabled(features.GenericWorkload)}
}

// Update takes over the list of the snapshot's nodes.
func (r *Roster) Update(nodes []fwk.NodeInfo) {
	r.updates++
	r.heed()
	moved := len(nodes) != len(r.seen)
	if moved {
		r.seen = make([]sighting, len(nodes))
	}
	for place, nodeInfo := range nodes {
		known, _ := nodeInfo.(*framework.NodeInfo)
		at := &r.seen[place]
		moved = moved || at.nodeInfo != known
		if known == nil || !at.stands(known, r.groups) {
			r.look(place, nodeInfo, known)
		}
	}
	if moved {
		r.lay()
	}
	r.forget()
}

// forget drops the older half of the changes when they are more than the nodes.
func (r *Roster) forget() {
	if len(r.changes) > len(r.seen) {
		half := len(r.changes) / 2
		r.since = r.changes[half-1].update
		r.changes = slices.Delete(r.changes, 0, half)
	}
}

// lay notes where the nodes of a new list are.
func (r *Roster) lay() {
	r.layout++
	r.changes, r.since = r.changes[:0], r.updates
	clear(r.placeOf)
	for place := range r.seen {
		r.placeOf[r.seen[place].node] = place
	}
}

// heed has nodes looked at anew of which the cache says that something has changed.
func (r *Roster) heed() {
	for _, changed := range r.cache.changes.take() {
		if place, ok := r.placeOf[changed]; ok {
			r.seen[place].devices = nil
		}
	}
}

// look looks at the node at a place.
func (r *Roster) look(place int, nodeInfo fwk.NodeInfo, known *framework.NodeInfo) {
	node, devices := r.cache.sight(nodeInfo)
	now := sighting{nodeInfo: known, node: node}
	if known != nil {
		now.generation, now.pods, now.devices = known.Generation, len(known.Pods), devices
	}
	r.seen[place], r.placeOf[node] = now, place
	r.changes = append(r.changes, change{r.updates, place})
}

// At returns the devices of the node at a place of the list, as Cache.Of would return them for a
// pod that holds nothing, or nil where they would have to be computed or differ from pod to pod.
func (r *Roster) At(place int) *dispatch.Node { return r.seen[place].devices }

// Updates returns how often the roster was updated.
func (r *Roster) Updates() uint64 { return r.updates }

// Layout returns how often the list was another than before, and so identifies the places. Copies
// of NodeInfos, and those that are not upstream's own, are not told apart.
func (r *Roster) Layout() uint64 { return r.layout }

// ChangedSince returns the places of the nodes that may have changed after so many updates, some
// perhaps more than once.
func (r *Roster) ChangedSince(updates uint64) iter.Seq[int] {
	if updates < r.since {
		return r.Places()
	}
	first, _ := slices.BinarySearchFunc(r.changes, updates+1, func(c change, update uint64) int { return cmp.Compare(c.update, update) })
	return func(yield func(int) bool) {
		for _, c := range r.changes[first:] {
			if !yield(c.place) {
				return
			}
		}
	}
}

// Places returns the places of all nodes.
func (r *Roster) Places() iter.Seq[int] {
	return func(yield func(int) bool) {
		for place := range r.seen {
			if !yield(place) {
				return
			}
		}
	}
}

// sighting is a node of the snapshot, and what tells that it is still as it was.
type sighting struct {
	nodeInfo   *framework.NodeInfo
	generation int64
	pods       int
	node       *node
	devices    *dispatch.Node // nil for a sighting that is not to be relied on
}

// stands reports whether nothing has changed since in the snapshot. See memoKey for what the
// generation does not tell where pods are scheduled in groups; where they are not, it is all that
// has to be read of the NodeInfo.
func (s *sighting) stands(now *framework.NodeInfo, groups bool) bool {
	return s.devices != nil && s.nodeInfo == now && s.generation == now.Generation && (!groups || s.pods == len(now.Pods))
}

// sight looks up what was computed last for a node of the snapshot. devices are nil if that is not
// its state now, or not for every pod.
func (c *Cache) sight(nodeInfo fwk.NodeInfo) (n *node, devices *dispatch.Node) {
	n, inv := c.covering(nodeInfo.Node())
	if n == nil || inv.err != nil || !inv.retryAt.IsZero() {
		return n, nil
	}
	reserved, last := n.reservations(), n.last.Load()
	if last == nil || last.key != keyOf(nodeInfo, reserved, inv) || len(last.nominated) > 0 || reserved.uncertain() {
		return n, nil
	}
	return n, last.devices
}
