// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"iter"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// PartsHeld yields the pods of a namespace that hold devices, with what they hold of what quotas
// count in parts (see [allocation.Set.PartsHeld]): those that the nodes of the scheduler's snapshot
// list, and those that have reservations there. A pod that may have been bound to several nodes is
// yielded for each. It calls no plugin.
func (c *Cache) PartsHeld(nodes []fwk.NodeInfo, namespace string) iter.Seq2[*v1.Pod, sdk.ResourceList] {
	return func(yield func(*v1.Pod, sdk.ResourceList) bool) {
		for _, nodeInfo := range nodes {
			if !c.partsHeldOn(nodeInfo, namespace, yield) {
				return
			}
		}
	}
}

// partsHeldOn is PartsHeld for one node. It reports whether to go on.
func (c *Cache) partsHeldOn(
	nodeInfo fwk.NodeInfo, namespace string, yield func(*v1.Pod, sdk.ResourceList) bool,
) bool {
	n := c.find(nodeInfo.Node().Name)
	if n == nil {
		return true
	}
	inv, reserved, last := n.inventory.Load(), n.reservations(), n.last.Load()
	if inv == nil {
		return true
	}
	holds := func(pod *v1.Pod, holder *allocation.Holder) bool {
		return yield(pod, c.schedulers.PartsHeld(inv.devices, holder))
	}
	listed := map[types.UID]bool{}
	for _, info := range nodeInfo.GetPods() {
		pod := info.GetPod()
		if pod.Namespace != namespace || pod.Spec.NodeName == "" {
			continue
		}
		if r, isReserved := reserved.get(pod.UID); isReserved && pod.ResourceVersion == r.version {
			continue // as a reservation
		}
		listed[pod.UID] = true
		if held, ok := c.heldBy(pod, inv, last); ok && !holds(pod, held.Holder) {
			return false
		}
	}
	for uid, r := range reserved.pods {
		if r.pod != nil && r.pod.Namespace == namespace && !listed[uid] && !holds(r.pod, r.devices) {
			return false
		}
	}
	return true
}

// PartsOf returns what a pod with an allocation on a node would hold of what quotas count in parts.
func (c *Cache) PartsOf(nodeName string, holder *allocation.Holder) sdk.ResourceList {
	var devices *allocation.Inventory
	if n := c.find(nodeName); n != nil {
		if inv := n.inventory.Load(); inv != nil {
			devices = inv.devices
		}
	}
	return c.schedulers.PartsHeld(devices, holder)
}
