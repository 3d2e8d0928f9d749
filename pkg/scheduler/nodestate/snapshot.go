// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
)

// Snapshot is the state of a node of the scheduler's snapshot that was computed last, and what
// identifies it. Any number of users may keep any number of them: asking whether one still holds
// changes nothing.
type Snapshot struct {
	// NodeInfo is the node in the scheduler's snapshot.
	NodeInfo *framework.NodeInfo
	// Devices are what State returns for every pod that is not on the node and tolerates no taint
	// of its devices, or nil where State would have to compute, or where that differs from pod to
	// pod.
	Devices *allocation.Node
	// Tainted says that the node has tainted devices: see DiffersFor.
	Tainted bool

	generation int64
	pods       int
	node       *node
	inventory  *inventory
	reserved   *reservations
}

// Snapshot looks up the last state of a node. It computes nothing.
func (c *Cache) Snapshot(nodeInfo *framework.NodeInfo) Snapshot {
	s := Snapshot{NodeInfo: nodeInfo, generation: nodeInfo.Generation, pods: len(nodeInfo.Pods)}
	s.node = c.find(nodeInfo.Node().Name)
	if s.node == nil {
		return s
	}
	s.inventory, s.reserved = s.node.inventory.Load(), s.node.reserved.Load()
	if !c.isCurrent(s.inventory, nodeInfo.Node()) || s.inventory.err != nil || !s.inventory.retryAt.IsZero() {
		return s
	}
	s.Tainted = s.inventory.taints != nil
	reserved, last := orNone(s.reserved), s.node.last.Load()
	if last != nil && last.version == versionOf(nodeInfo, reserved, s.inventory) &&
		len(last.nominated) == 0 && !reserved.unresolved() {
		s.Devices = last.devices
	}
	return s
}

// DiffersFor reports whether a pod with these tolerations may have devices that others may not
// have: then State returns something else for it than Devices.
func (s *Snapshot) DiffersFor(tolerations []v1.Toleration) bool {
	return s.Tainted && s.inventory.taints.tolerated(tolerations) != 0
}

// Holds reports whether the node is as it was, in the scheduler's snapshot and in the cache: then
// Devices, if any, are its state.
func (s *Snapshot) Holds() bool {
	return s.HoldsInScheduler() && s.node != nil &&
		s.inventory == s.node.inventory.Load() && s.reserved == s.node.reserved.Load()
}

// HoldsInScheduler is Holds for one who learns from WrittenSince what changes in the cache.
func (s *Snapshot) HoldsInScheduler() bool {
	return s.generation == s.NodeInfo.Generation && s.pods == len(s.NodeInfo.Pods)
}

// Change is what made a state invalid.
type Change uint8

// The changes, of which the first that applies counts.
const (
	InventoryChange   Change = iota // of the node's devices, or of the node itself
	ReservationChange               // of allocations that are not yet seen on a bound pod
	NodeInfoChange                  // of anything else in the scheduler's snapshot of the node
)

// ChangeSince returns what has changed from an earlier snapshot of the node to this one.
func (s *Snapshot) ChangeSince(before *Snapshot) Change {
	switch {
	case s.node != before.node || s.inventory == nil || s.inventory.revision != before.inventory.revision:
		return InventoryChange
	case orNone(s.reserved).epoch != orNone(before.reserved).epoch:
		return ReservationChange
	default:
		return NodeInfoChange
	}
}
