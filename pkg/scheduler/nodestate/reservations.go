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
	// pod is the pod as it was reserved; nil for devices in addition to those that a pod holds.
	pod *v1.Pod
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
	for _, held := range r.pods {
		if held.unresolved > 0 {
			return true
		}
	}
	return false
}

// get returns a pod's reservation.
func (r *reservations) get(uid types.UID) (reservation, bool) {
	if r == nil {
		return reservation{}, false
	}
	found, ok := r.pods[uid]
	return found, ok
}

// orNone returns r, or reservations of no pod for nil.
func orNone(r *reservations) *reservations {
	if r == nil {
		return &reservations{}
	}
	return r
}

// withReservation returns a copy with one reservation replaced or, when it stands for nothing,
// dropped.
func (r *reservations) withReservation(uid types.UID, next reservation) *reservations {
	pods := make(map[types.UID]reservation, len(r.pods)+1)
	maps.Copy(pods, r.pods)
	if next.reserved || next.unresolved > 0 {
		pods[uid] = next
	} else {
		delete(pods, uid)
	}
	return &reservations{epoch: r.epoch, pods: pods}
}

// nodesOfPods has, for each pod that has reservations, the names of their nodes. A pod has several
// while it is not known whether it was bound to one, and it is scheduled again. It is safe for
// concurrent use.
type nodesOfPods struct {
	mu    sync.Mutex
	names map[types.UID][]string // the latest reservation's comes last; a list is replaced, not changed
}

// nodes returns the nodes of a pod. The caller does not change them.
func (n *nodesOfPods) nodes(uid types.UID) []string {
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
	n.names[uid] = append(withoutName(n.names[uid], nodeName), nodeName)
}

// remove drops a node of a pod, if it is there.
func (n *nodesOfPods) remove(uid types.UID, nodeName string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if left := withoutName(n.names[uid], nodeName); len(left) > 0 {
		n.names[uid] = left
	} else {
		delete(n.names, uid)
	}
}

// withoutName returns a copy of names without one of them.
func withoutName(names []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(other string) bool { return other == name })
}
