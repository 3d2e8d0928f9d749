// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// reservations returns what is reserved on a node now.
func (n *node) reservations() *reservations { return orNone(n.reserved.Load()) }

// Reserve keeps an allocation for a pod on a node. annotation is the value with which the pod will
// be bound.
func (c *Cache) Reserve(nodeName string, pod *v1.Pod, holder *allocation.Holder, annotation string) {
	c.change(nodeName, pod.UID, func(reservation) reservation {
		return reservation{
			devices: holder, pod: pod, annotation: annotation, version: pod.ResourceVersion, reserved: true,
		}
	})
}

// Resume reserves again what the pod had on the node when it was to be bound there and it is not
// known whether that took effect. It reports whether there was such a binding: then the pod must be
// given no other devices there.
func (c *Cache) Resume(nodeName string, pod *v1.Pod) bool {
	resumed := false
	c.change(nodeName, pod.UID, func(r reservation) reservation {
		if resumed = r.unresolved > 0; resumed {
			r.version, r.reserved = pod.ResourceVersion, true
		}
		return r
	})
	return resumed
}

// Reserved returns the annotation with which the pod is to be bound to the node, or "" when there
// is no reservation.
func (c *Cache) Reserved(nodeName string, uid types.UID) string {
	return c.reservation(nodeName, uid).annotation
}

// ReservedAllocation returns what the annotation says that Reserved returns, or nil when there is
// no reservation. The caller does not change it.
func (c *Cache) ReservedAllocation(nodeName string, uid types.UID) *sdk.PodInfo {
	if devices := c.reservation(nodeName, uid).devices; devices != nil {
		return devices.Pod
	}
	return nil
}

// ReservedOn returns the node on which the pod has its latest reservation, or "".
func (c *Cache) ReservedOn(uid types.UID) string {
	nodes := c.reservedOn.nodes(uid)
	if len(nodes) == 0 {
		return ""
	}
	return nodes[len(nodes)-1]
}

// reservation returns a pod's reservation on a node, the zero one when there is none.
func (c *Cache) reservation(nodeName string, uid types.UID) reservation {
	n := c.find(nodeName)
	if n == nil {
		return reservation{}
	}
	r, _ := n.reserved.Load().get(uid)
	return r
}

// Unreserve ends what Reserve began. It may be called any number of times. What Keep keeps stays.
func (c *Cache) Unreserve(nodeName string, uid types.UID) {
	c.change(nodeName, uid, func(r reservation) reservation {
		r.reserved = false
		return r
	})
}

// Keep makes the pod's allocation on the node count until Resolve is called as often, or until the
// pod is deleted or seen bound: a binding may have taken effect.
func (c *Cache) Keep(nodeName string, uid types.UID) {
	c.change(nodeName, uid, func(r reservation) reservation {
		if r.devices != nil {
			r.unresolved++
		}
		return r
	})
}

// Resolve undoes one Keep: that binding is known not to have taken effect.
func (c *Cache) Resolve(nodeName string, uid types.UID) {
	c.change(nodeName, uid, func(r reservation) reservation {
		r.unresolved = max(0, r.unresolved-1)
		return r
	})
}

// PodDeleted drops the reservations of a pod that no longer exists, on all nodes. It reports
// whether one was kept: then devices are free from now on, and were not yet when others learnt of
// the deletion.
func (c *Cache) PodDeleted(uid types.UID) (kept bool) {
	for _, nodeName := range c.reservedOn.nodes(uid) {
		c.change(nodeName, uid, func(r reservation) reservation {
			kept = kept || r.unresolved > 0
			return reservation{}
		})
	}
	return kept
}

// change replaces a pod's reservation on a node, which may be the zero one, by what to returns for
// it, and drops it when that stands for nothing.
func (c *Cache) change(nodeName string, uid types.UID, to func(reservation) reservation) {
	c.write(nodeName, func(n *node) {
		current := n.reservations()
		before, _ := current.get(uid)
		after := to(before)
		if after == before {
			return
		}
		next := current.withReservation(uid, after)
		next.epoch++
		n.reserved.Store(next)
		if _, stays := next.get(uid); !stays {
			c.reservedOn.remove(uid, nodeName)
		} else if after.reserved {
			c.reservedOn.add(uid, nodeName)
		}
	})
}

// dropBound drops reservations of pods that a NodeInfo shows bound. Who holds what stays the same:
// the pods' own annotations say it from now on.
func (c *Cache) dropBound(nodeName string, then *reservations, uids []types.UID) {
	c.write(nodeName, func(n *node) {
		next := n.reservations()
		for _, uid := range uids {
			now, _ := next.get(uid)
			if before, _ := then.get(uid); now == before {
				next = next.withReservation(uid, reservation{})
				c.reservedOn.remove(uid, nodeName)
			}
		}
		n.reserved.Store(next)
	})
}
