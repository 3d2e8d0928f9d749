// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/pkg/scheduler/dispatch"
)

// reservation is an allocation that is made and not yet seen on a bound pod.
type reservation struct {
	holder *dispatch.Holder
	// annotation is the value with which the pod is bound.
	annotation string
	// unknown says that a binding may have succeeded: the devices count although no NodeInfo lists the pod.
	unknown bool
}

// Reserve keeps an allocation for a pod on a node. annotation is the value with which the pod will be bound.
func (c *Cache) Reserve(nodeName string, holder *dispatch.Holder, annotation string) {
	n := c.node(nodeName)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.epoch++
	n.reserved[types.UID(holder.UID)] = &reservation{holder: holder, annotation: annotation}
	c.reservedBy.Store(types.UID(holder.UID), n)
}

// Reserved returns the annotation with which the pod is to be bound to the node, or "" if there is no reservation.
func (c *Cache) Reserved(nodeName string, uid types.UID) string {
	n := c.node(nodeName)
	n.mu.Lock()
	defer n.mu.Unlock()
	if r := n.reserved[uid]; r != nil {
		return r.annotation
	}
	return ""
}

// Unreserve drops the pod's reservation on the node, unless it is kept by Keep. It may be called any number of times.
func (c *Cache) Unreserve(nodeName string, uid types.UID) {
	c.drop(c.node(nodeName), uid, func(r *reservation) bool { return !r.unknown })
}

// Keep makes the pod's reservation on the node count until Settle, PodGone, or until the pod is seen bound with it: its
// binding may have succeeded.
func (c *Cache) Keep(nodeName string, uid types.UID) {
	n := c.node(nodeName)
	n.mu.Lock()
	defer n.mu.Unlock()
	if r := n.reserved[uid]; r != nil {
		n.epoch++
		n.reserved[uid] = &reservation{holder: r.holder, annotation: r.annotation, unknown: true}
	}
}

// Settle drops a kept reservation: the pod is known not to be bound with it.
func (c *Cache) Settle(nodeName string, uid types.UID) {
	c.drop(c.node(nodeName), uid, func(r *reservation) bool { return r.unknown })
}

// PodGone drops the reservation of a pod that no longer exists.
func (c *Cache) PodGone(uid types.UID) {
	if n, ok := c.reservedBy.Load(uid); ok {
		c.drop(n.(*node), uid, func(*reservation) bool { return true })
	}
}

func (c *Cache) drop(n *node, uid types.UID, which func(*reservation) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if r := n.reserved[uid]; r != nil && which(r) {
		n.epoch++
		delete(n.reserved, uid)
		c.reservedBy.CompareAndDelete(uid, n)
	}
}

// reservations returns a copy of what is reserved on the node, and the epoch that it belongs to.
func (n *node) reservations() (map[types.UID]*reservation, uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.reserved) == 0 {
		return nil, n.epoch
	}
	reserved := make(map[types.UID]*reservation, len(n.reserved))
	for uid, r := range n.reserved {
		reserved[uid] = r
	}
	return reserved, n.epoch
}
