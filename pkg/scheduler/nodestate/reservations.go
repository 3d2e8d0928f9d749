// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// reservations is what is reserved on one node. It is immutable: changing it means replacing it.
type reservations struct {
	// epoch grows with each change that matters to who holds what.
	epoch uint64
	pods  map[types.UID]reservation
}

// reservation is an allocation that is made and not yet seen on the bound pod.
type reservation struct {
	devices *allocation.Holder
	// annotation is the value with which the pod is bound.
	annotation string
	// version is the pod's resourceVersion when it was reserved. The scheduler's cache lists that
	// very object, with a node's name but the user's annotation, until the API server's shows up,
	// which has another version.
	version string
	// reserved says that the pod is between Reserve and Unreserve.
	reserved bool
	// unresolved is the number of bindings that may have taken effect. While there are any, the
	// allocation counts although no NodeInfo lists the pod.
	unresolved int
}

func (r reservation) asHolder() holder { return holder{Holder: r.devices, annotation: r.annotation} }

func (r *reservations) empty() bool { return r == nil || len(r.pods) == 0 }

// unresolved reports whether a pod that is not listed may hold devices: one that is scheduled
// again, which State excludes.
func (r *reservations) unresolved() bool {
	for _, of := range r.pods {
		if of.unresolved > 0 {
			return true
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
func (n *node) reservations() *reservations { return orNone(n.reserved.Load()) }

// orNone returns r, or reservations of no pod for nil.
func orNone(r *reservations) *reservations {
	if r == nil {
		return &reservations{}
	}
	return r
}

// Reserve keeps an allocation for a pod on a node. annotation is the value with which the pod will
// be bound.
func (c *Cache) Reserve(nodeName string, pod *v1.Pod, holder *allocation.Holder, annotation string) {
	c.change(nodeName, pod.UID, func(reservation) reservation {
		return reservation{devices: holder, annotation: annotation, version: pod.ResourceVersion, reserved: true}
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
	nodes := c.reservedOn.of(uid)
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
	r, _ := n.reserved.Load().of(uid)
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
	for _, nodeName := range c.reservedOn.of(uid) {
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
		before, _ := current.of(uid)
		after := to(before)
		if after == before {
			return
		}
		next := current.with(uid, after)
		next.epoch++
		n.reserved.Store(next)
		if _, stays := next.of(uid); !stays {
			c.reservedOn.remove(uid, nodeName)
		} else if after.reserved {
			c.reservedOn.add(uid, nodeName)
		}
	})
}

// with returns a copy with one reservation replaced or, when it stands for nothing, dropped.
func (r *reservations) with(uid types.UID, next reservation) *reservations {
	pods := make(map[types.UID]reservation, len(r.pods)+1)
	maps.Copy(pods, r.pods)
	if next.reserved || next.unresolved > 0 {
		pods[uid] = next
	} else {
		delete(pods, uid)
	}
	return &reservations{epoch: r.epoch, pods: pods}
}

// dropBound drops reservations of pods that a NodeInfo shows bound. Who holds what stays the same:
// the pods' own annotations say it from now on.
func (c *Cache) dropBound(nodeName string, then *reservations, uids []types.UID) {
	c.write(nodeName, func(n *node) {
		next := n.reservations()
		for _, uid := range uids {
			now, _ := next.of(uid)
			if before, _ := then.of(uid); now == before {
				next = next.with(uid, reservation{})
				c.reservedOn.remove(uid, nodeName)
			}
		}
		n.reserved.Store(next)
	})
}

// nodesOfPods has, for each pod that has reservations, the names of their nodes. A pod has several
// while it is not known whether it was bound to one, and it is scheduled again. It is safe for
// concurrent use.
type nodesOfPods struct {
	mu    sync.Mutex
	names map[types.UID][]string // the latest reservation's comes last; a list is replaced, not changed
}

// of returns the nodes of a pod. The caller does not change them.
func (n *nodesOfPods) of(uid types.UID) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.names[uid]
}

// add makes a node the last one of a pod.
func (n *nodesOfPods) add(uid types.UID, nodeName string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.names == nil {
		n.names = map[types.UID][]string{}
	}
	n.names[uid] = append(without(n.names[uid], nodeName), nodeName)
}

// remove drops a node of a pod, if it is there.
func (n *nodesOfPods) remove(uid types.UID, nodeName string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if left := without(n.names[uid], nodeName); len(left) > 0 {
		n.names[uid] = left
	} else {
		delete(n.names, uid)
	}
}

// without returns a copy of names without one of them.
func without(names []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(other string) bool { return other == name })
}
