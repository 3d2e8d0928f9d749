// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/pkg/scheduler/dispatch"
)

// reservations is what is reserved on one node. It is immutable: changing it means replacing it.
type reservations struct {
	// epoch grows with each change that matters to who holds what.
	epoch uint64
	pods  map[types.UID]reservation
}

// reservation is an allocation that is made and not yet seen on the bound pod.
type reservation struct {
	holder *dispatch.Holder
	// annotation is the value with which the pod is bound.
	annotation string
	// version is the pod's resourceVersion when it was reserved. The scheduler's cache lists that
	// very object, with a node's name but the user's annotation, until the API server's shows up,
	// which has another version.
	version string
	// reserved says that the pod is on its way to this node: between Reserve and Unreserve.
	reserved bool
	// unknown is the number of bindings that may have taken effect, for all that is known. While
	// there are any, the allocation counts although no NodeInfo lists the pod.
	unknown int
}

func (r *reservations) empty() bool { return r == nil || len(r.pods) == 0 }

// uncertain reports whether a pod that is not listed may hold devices: one that is scheduled again,
// which Of leaves out.
func (r *reservations) uncertain() bool {
	if r != nil {
		for _, of := range r.pods {
			if of.unknown > 0 {
				return true
			}
		}
	}
	return false
}

// of returns a pod's reservation.
func (r *reservations) of(uid types.UID) (reservation, bool) {
	if r == nil {
		return reservation{}, false
	}
	found, ok := r.pods[uid]
	return found, ok
}

// reservations returns what is reserved on a node now.
func (n *node) reservations() *reservations {
	if r := n.reserved.Load(); r != nil {
		return r
	}
	return &reservations{}
}

// Reserve keeps an allocation for a pod on a node. annotation is the value with which the pod will
// be bound.
func (c *Cache) Reserve(nodeName string, pod *v1.Pod, holder *dispatch.Holder, annotation string) {
	c.change(nodeName, pod.UID, func(reservation) reservation {
		return reservation{holder: holder, annotation: annotation, version: pod.ResourceVersion, reserved: true}
	})
	c.reservedOn.Store(pod.UID, nodeName)
}

// Resume reserves again what the pod had on the node when it was to be bound there and nobody knows
// whether that took effect. It reports whether there was such a binding: then the pod must be given
// no other devices there.
func (c *Cache) Resume(nodeName string, pod *v1.Pod) bool {
	resumed := false
	c.change(nodeName, pod.UID, func(r reservation) reservation {
		if resumed = r.unknown > 0; resumed {
			r.version, r.reserved = pod.ResourceVersion, true
		}
		return r
	})
	if resumed {
		c.reservedOn.Store(pod.UID, nodeName)
	}
	return resumed
}

// Reserved returns the annotation with which the pod is to be bound to the node, or "" when there
// is no reservation.
func (c *Cache) Reserved(nodeName string, uid types.UID) string {
	n := c.find(nodeName)
	if n == nil {
		return ""
	}
	r, _ := n.reserved.Load().of(uid)
	return r.annotation
}

// Unreserve ends what Reserve began. It may be called any number of times. What is kept by Keep
// stays.
func (c *Cache) Unreserve(nodeName string, uid types.UID) {
	c.change(nodeName, uid, func(r reservation) reservation {
		r.reserved = false
		return r
	})
}

// Keep makes the pod's allocation on the node count until Settle is called as often, or until the
// pod is gone or seen bound: a binding may have taken effect.
func (c *Cache) Keep(nodeName string, uid types.UID) {
	c.change(nodeName, uid, func(r reservation) reservation {
		if r.holder != nil {
			r.unknown++
		}
		return r
	})
}

// Settle undoes one Keep: that binding is known not to have taken effect.
func (c *Cache) Settle(nodeName string, uid types.UID) {
	c.change(nodeName, uid, func(r reservation) reservation {
		r.unknown = max(0, r.unknown-1)
		return r
	})
}

// PodGone drops the latest reservation of a pod that no longer exists. What is kept on other nodes
// is settled in time.
func (c *Cache) PodGone(uid types.UID) {
	if nodeName, ok := c.reservedOn.Load(uid); ok {
		c.change(nodeName.(string), uid, func(reservation) reservation { return reservation{} })
	}
}

// change replaces a pod's reservation on a node, which may be the zero one, by what to returns for
// it, and drops it when that stands for nothing.
func (c *Cache) change(nodeName string, uid types.UID, to func(reservation) reservation) {
	c.write(nodeName, func(n *node) {
		current := n.reservations()
		before, _ := current.of(uid)
		after := to(before)
		if after == before {
			return
		}
		next := current.with(uid, after)
		next.epoch++
		n.reserved.Store(next)
		if _, stays := next.of(uid); !stays {
			c.reservedOn.CompareAndDelete(uid, nodeName)
		}
	})
}

// with returns a copy with one reservation replaced or, when it stands for nothing, dropped.
func (r *reservations) with(uid types.UID, next reservation) *reservations {
	pods := make(map[types.UID]reservation, len(r.pods)+1)
	maps.Copy(pods, r.pods)
	if next.reserved || next.unknown > 0 {
		pods[uid] = next
	} else {
		delete(pods, uid)
	}
	return &reservations{epoch: r.epoch, pods: pods}
}

// seenBound drops reservations that a NodeInfo shows on the bound pods. Nothing changes by it in
// who holds what: the pods' own annotations stand for them from here on.
func (c *Cache) seenBound(nodeName string, seen *reservations, uids []types.UID) {
	c.write(nodeName, func(n *node) {
		next := n.reservations()
		for _, uid := range uids {
			now, _ := next.of(uid)
			if then, _ := seen.of(uid); now == then {
				next = next.with(uid, reservation{})
				c.reservedOn.CompareAndDelete(uid, nodeName)
			}
		}
		n.reserved.Store(next)
	})
}
