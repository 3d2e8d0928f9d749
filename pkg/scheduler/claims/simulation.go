// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/ptr"
)

var _ fwk.PreFilterExtensions = (*Plugin)(nil)

// PreFilterExtensions returns the plugin itself.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return p }

// AddPod puts back a pod that RemovePod has removed from a simulation.
func (p *Plugin) AddPod(
	_ context.Context, state fwk.CycleState, _ *v1.Pod, added fwk.PodInfo, _ fwk.NodeInfo,
) *fwk.Status {
	if c := cycleOf(state); c != nil {
		if _, removed := c.removed[added.GetPod().UID]; removed {
			delete(c.removed, added.GetPod().UID)
			c.free()
		}
	}
	return nil
}

// RemovePod removes a pod from a simulation: the claims of which all consumers are removed are
// free.
func (p *Plugin) RemovePod(
	_ context.Context, state fwk.CycleState, _ *v1.Pod, removed fwk.PodInfo, _ fwk.NodeInfo,
) *fwk.Status {
	if c := cycleOf(state); c != nil {
		if c.removed == nil {
			c.removed = map[types.UID]*v1.Pod{}
		}
		c.removed[removed.GetPod().UID] = removed.GetPod()
		c.free()
	}
	return nil
}

// free computes which devices are free when the removed pods are gone.
func (c *cycle) free() {
	c.freed = nil
	for _, pod := range c.removed {
		for i := range pod.Spec.ResourceClaims {
			if claim := c.plugin.claim(pod, &pod.Spec.ResourceClaims[i]); claim != nil && c.plugin.freeWithout(claim,
				func(consumer types.UID) bool { return c.removed[consumer] != nil }) {
				c.freed = devicesOf(claim.Status.Allocation, c.freed)
			}
		}
	}
}

// freeWithout reports whether a claim is free when the consumers are gone for which gone says so.
// One that is in flight has consumers that its status does not have yet.
func (p *Plugin) freeWithout(claim *resourceapi.ResourceClaim, gone func(consumer types.UID) bool) bool {
	if claim.Status.Allocation == nil || len(claim.Status.ReservedFor) == 0 ||
		p.manager.ResourceClaims().GetPendingAllocation(claim.UID) != nil {
		return false
	}
	for _, consumer := range claim.Status.ReservedFor {
		if consumer.APIGroup != "" || consumer.Resource != "pods" || !gone(consumer.UID) {
			return false
		}
	}
	return true
}

// devicesOf adds the devices that an allocation, which may be nil, keeps from others.
func devicesOf(
	allocation *resourceapi.AllocationResult, to sets.Set[structured.DeviceID],
) sets.Set[structured.DeviceID] {
	if to == nil {
		to = sets.New[structured.DeviceID]()
	}
	if allocation == nil {
		return to
	}
	for i := range allocation.Devices.Results {
		if result := &allocation.Devices.Results[i]; !ptr.Deref(result.AdminAccess, false) {
			to.Insert(structured.MakeDeviceID(result.Driver, result.Pool, result.Device))
		}
	}
	return to
}
