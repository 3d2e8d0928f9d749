// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
)

// holder is a pod that holds devices, and the annotation that says so.
type holder struct {
	*allocation.Holder
	annotation string             // empty when the node reports what the pod holds
	reported   *deviceinfo.Holder // by the node, or nil
}

// holders are the pods of a NodeInfo, as far as devices are concerned.
type holders struct {
	// present are the pods that hold devices.
	present map[types.UID]holder
	// ending are those of them that are being deleted.
	ending []types.UID
	// nominated are pods that are not on the node, but listed because they may come.
	nominated []*v1.Pod
	// bound are the pods that have a reservation and are listed as bound.
	bound []types.UID
	// unlisted are pods that have a reservation, but are not listed.
	unlisted map[types.UID]holder
}

// holdersOf sorts the pods of a NodeInfo. last is an earlier state of the node, which saves
// decoding what is known; it may be nil.
//
// A pod that is assumed has a node's name but still the user's annotation, which may be forged: its
// reservation stands in for it. It does so too for a pod that has no node's name yet: preemption
// for a pod group lists the group's own pods like that. A bound pod without an allocation for this
// node holds nothing: kubecri refuses its containers. Under Enforce that goes for one without a
// valid seal, too. A pod that the node reports in KubeDevice/Holders, and that is bound to it,
// holds what the node says: the kubelet gave it devices before they were scheduled, or its seal is
// not known any more.
func (c *Cache) holdersOf(nodeInfo fwk.NodeInfo, reserved *reservations, inv *inventory, last *state) holders {
	h := holders{present: map[types.UID]holder{}, unlisted: make(map[types.UID]holder, len(reserved.pods))}
	for uid, r := range reserved.pods {
		if r.unresolved > 0 {
			h.present[uid] = r.asHolder()
		} else {
			h.unlisted[uid] = r.asHolder()
		}
	}
	for _, info := range nodeInfo.GetPods() {
		pod := info.GetPod()
		r, isReserved := reserved.of(pod.UID)
		switch {
		case pod.Spec.NodeName == "" && !isReserved:
			h.nominated = append(h.nominated, pod)
			continue
		case isReserved && (pod.Spec.NodeName == "" || pod.ResourceVersion == r.version):
			h.present[pod.UID] = r.asHolder()
			delete(h.unlisted, pod.UID)
			continue
		case isReserved:
			h.bound = append(h.bound, pod.UID)
			delete(h.present, pod.UID)
			delete(h.unlisted, pod.UID)
		}
		if held, ok := c.heldBy(pod, inv, last); ok {
			h.present[pod.UID] = held
			if pod.DeletionTimestamp != nil {
				h.ending = append(h.ending, pod.UID)
			}
		}
	}
	return h
}

// allocationOf reads what a bound pod's annotation says it holds.
func allocationOf(pod *v1.Pod, last *state) (holder, bool) {
	annotation := pod.Annotations[deviceinfo.Annotation]
	if !deviceinfo.MayAllocate(annotation) {
		return holder{}, false
	}
	if last != nil {
		if known, ok := last.present[pod.UID]; ok && known.annotation == annotation {
			return known, true
		}
	}
	allocated, err := deviceinfo.PodAllocation(pod)
	if err != nil {
		return holder{}, false
	}
	held := allocation.NewHolder(string(pod.UID), allocated, request.Containers(pod))
	return holder{Holder: held, annotation: annotation}, true
}

// inOrder returns the holders in the order of their UIDs.
func inOrder(holders map[types.UID]holder) []*allocation.Holder {
	ordered := make([]*allocation.Holder, 0, len(holders))
	for _, uid := range slices.Sorted(maps.Keys(holders)) {
		ordered = append(ordered, holders[uid].Holder)
	}
	return ordered
}
