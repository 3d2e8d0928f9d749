// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/scheduler/dispatch"
)

// holders returns the pods that hold devices of the node, the pods that are nominated for it, and those with a
// reservation that nodeInfo shows bound with it.
//
// A pod that is assumed has a node's name but still the user's annotation, which may be forged: its reservation stands in
// for it. A bound pod without an allocation for this node holds nothing: kubecri refuses its containers.
func holders(nodeInfo fwk.NodeInfo, reserved map[types.UID]*reservation, last *memo) (held map[types.UID]*holder, nominated []*v1.Pod, bound []types.UID) {
	held = map[types.UID]*holder{}
	for uid, r := range reserved {
		if r.unknown {
			held[uid] = &holder{Holder: r.holder}
		}
	}
	for _, info := range nodeInfo.GetPods() {
		pod := info.GetPod()
		annotation := pod.Annotations[deviceinfo.Annotation]
		if r := reserved[pod.UID]; r != nil {
			held[pod.UID] = &holder{Holder: r.holder, annotation: r.annotation}
			if annotation == r.annotation {
				bound = append(bound, pod.UID)
			}
			continue
		}
		if pod.Spec.NodeName == "" {
			nominated = append(nominated, pod)
			continue
		}
		if annotation == "" {
			continue
		}
		if last != nil {
			if h := last.holders[pod.UID]; h != nil && h.annotation == annotation {
				held[pod.UID] = h
				continue
			}
		}
		if allocation, err := deviceinfo.PodAllocation(pod); err == nil {
			held[pod.UID] = &holder{Holder: dispatch.NewHolder(string(pod.UID), allocation, Containers(pod)), annotation: annotation}
		}
	}
	return held, nominated, bound
}

// seenBound drops a reservation that a snapshot shows on the bound pod. The epoch stays: nothing changes by it.
func (n *node) seenBound(c *Cache, uid types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.reserved, uid)
	c.reservedBy.CompareAndDelete(uid, n)
}
