// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
)

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
		r, isReserved := reserved.get(pod.UID)
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
