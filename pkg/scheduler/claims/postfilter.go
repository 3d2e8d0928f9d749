// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured"
	fwk "k8s.io/kube-scheduler/framework"
)

// PostFilter keeps preemption from evicting pods without success, and has upstream's plugin
// deallocate a claim of the pod that can be used nowhere.
//
// A claim whose consumers have ended is deallocated by the resourceclaim controller, some time
// after them. Until then its devices are not free, and no pod that ends is in sight, so preemption
// would evict more. So the pod waits while these devices would be enough.
func (p *Plugin) PostFilter(
	ctx context.Context, state fwk.CycleState, pod *v1.Pod, statuses fwk.NodeToStatusReader,
) (*fwk.PostFilterResult, *fwk.Status) {
	c := cycleOf(state)
	if c == nil {
		return p.upstream.PostFilter(ctx, state, pod, statuses)
	}
	waits, err := c.waits(ctx, statuses)
	switch {
	case err != nil:
		return nil, fwk.AsStatus(err)
	case waits:
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable,
			"no pod is evicted while claims of pods that have ended are deallocated: their devices are enough")
	case c.found.pinned:
		return c.postFilterUpstream(ctx, pod, statuses)
	}
	return nil, fwk.NewStatus(fwk.Unschedulable)
}

// waits reports whether the pod fits somewhere when the claims are deallocated whose consumers have
// ended.
func (c *cycle) waits(ctx context.Context, statuses fwk.NodeToStatusReader) (bool, error) {
	ended, err := c.plugin.ended()
	if err != nil || ended.Len() == 0 {
		return false, err
	}
	nodes, err := statuses.NodesForStatusCode(c.plugin.handle.SnapshotSharedLister().NodeInfos(), fwk.Unschedulable)
	if err != nil {
		return false, err
	}
	for _, node := range nodes {
		if statuses.Get(node.Node().Name).Plugin() != Name {
			continue // something else is missing there as well
		}
		if _, err := c.allocate(ctx, node.Node(), func(id structured.DeviceID) bool {
			return c.holdsBut(id, ended)
		}); err == nil {
			return true, nil
		}
	}
	return false, nil
}

// ended returns the devices of claims whose consumers have all ended, or are about to.
func (p *Plugin) ended() (sets.Set[structured.DeviceID], error) {
	claims, err := p.manager.ResourceClaims().List()
	if err != nil {
		return nil, err
	}
	pods := p.handle.SharedInformerFactory().Core().V1().Pods().Lister()
	var devices sets.Set[structured.DeviceID]
	for _, claim := range claims {
		live := map[types.UID]bool{}
		for _, consumer := range claim.Status.ReservedFor {
			pod, err := pods.Pods(claim.Namespace).Get(consumer.Name)
			live[consumer.UID] = err == nil && pod.UID == consumer.UID && pod.DeletionTimestamp == nil &&
				pod.Status.Phase != v1.PodSucceeded && pod.Status.Phase != v1.PodFailed
		}
		if p.freeWithout(claim, func(consumer types.UID) bool { return !live[consumer] }) {
			devices = devicesOf(claim.Status.Allocation, devices)
		}
	}
	return devices, nil
}

// postFilterUpstream has upstream's plugin deallocate a claim of the pod that keeps it from all
// nodes.
func (c *cycle) postFilterUpstream(
	ctx context.Context, pod *v1.Pod, statuses fwk.NodeToStatusReader,
) (*fwk.PostFilterResult, *fwk.Status) {
	state, status := c.whole(ctx, pod)
	if !status.IsSuccess() {
		return nil, status
	}
	nodes, err := c.plugin.handle.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	for _, node := range nodes {
		if statuses.Get(node.Node().Name).Plugin() != Name {
			continue
		}
		if status := c.plugin.upstream.Filter(ctx, state, pod, node); status.Code() == fwk.Error {
			return nil, status
		}
	}
	return c.plugin.upstream.PostFilter(ctx, state, pod, statuses)
}
