// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/scheduler/claims/allocator"
	"github.com/kubedevice/kubedevice/pkg/scheduler/metrics"
)

// Reserve chooses the devices on the node, and has upstream's plugin allocate them.
func (p *Plugin) Reserve(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) *fwk.Status {
	c := cycleOf(state)
	if c == nil {
		return p.upstream.Reserve(ctx, state, pod, nodeName)
	}
	nodeInfo, err := p.handle.SnapshotSharedLister().NodeInfos().Get(nodeName)
	if err != nil {
		return fwk.AsStatus(err)
	}
	if c.isLeft(nodeName) {
		return c.reserveUpstream(ctx, state, pod, nodeInfo)
	}
	reached, err := c.index.Node(nodeInfo.Node())
	if err != nil {
		return fwk.AsStatus(err)
	}
	allocation, err := c.request.Improve(ctx, reached, c.holds)
	var left *allocator.ErrNotModelled
	switch {
	case errors.As(err, &left):
		p.leave(ctx, pod, err)
		return c.reserveUpstream(ctx, state, pod, nodeInfo)
	case err != nil:
		return fwk.NewStatus(fwk.Unschedulable, err.Error())
	}
	status, refused := c.reserveChosen(ctx, state, pod, nodeInfo, &view{
		slices: slicesOf(allocation, reached, c.request.RequestsAll()), allocated: c.allocated,
	}, allocation)
	if refused == nil {
		return status
	}
	metrics.ClaimDisagreements.Inc()
	klog.FromContext(ctx).Error(refused, "Upstream's allocator refused the devices that were chosen for a pod's claims",
		logkey.Pod, klog.KObj(pod), logkey.Node, klog.KRef("", nodeName))
	p.handle.EventRecorder().WithLogger(klog.FromContext(ctx)).Eventf(pod, nil, v1.EventTypeWarning,
		"ClaimChoiceRefused", "Scheduling", "Upstream's allocator chooses the devices on node %s: it refused those "+
			"that KubeDevice chose: %v", nodeName, refused)
	return c.reserveUpstream(ctx, state, pod, nodeInfo)
}

// reserveChosen has upstream's plugin allocate in a view that has the chosen devices. It returns an
// error if upstream's allocator refuses them, and a status if a claim has changed meanwhile.
func (c *cycle) reserveChosen(
	ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodeInfo fwk.NodeInfo, seen *view,
	chosen *allocator.Allocation,
) (status *fwk.Status, refused error) {
	upstream, shadow := c.plugin.upstream, framework.NewCycleState()
	c.plugin.manager.during(seen, func() {
		if _, status = upstream.PreFilter(ctx, shadow, pod, nil); !status.IsSuccess() {
			return
		}
		reserved := upstream.Filter(ctx, shadow, pod, nodeInfo)
		if reserved.IsSuccess() {
			reserved = upstream.Reserve(ctx, shadow, pod, nodeInfo.Node().Name)
		}
		refused = reserved.AsError()
	})
	if refused == nil && status.IsSuccess() {
		refused = c.compare(chosen, seen.signaled)
	}
	if refused != nil {
		upstream.Unreserve(ctx, shadow, pod, nodeInfo.Node().Name)
		return nil, refused
	}
	if err := adopt(state, shadow); err != nil {
		return fwk.AsStatus(err), nil
	}
	return status, nil
}

// compare returns an error if upstream's plugin allocated a device that is not a chosen one. It may
// exchange those of requests for the same, and it chooses for itself where a request is for all
// devices of the node, as it then sees them all.
func (c *cycle) compare(chosen *allocator.Allocation, signaled []*resourceapi.AllocationResult) error {
	if c.request.RequestsAll() {
		return nil
	}
	ids := sets.New[structured.DeviceID]()
	for _, device := range chosen.Devices() {
		ids.Insert(device.ID)
	}
	for _, allocation := range signaled {
		for i := range allocation.Devices.Results {
			result := &allocation.Devices.Results[i]
			if id := structured.MakeDeviceID(result.Driver, result.Pool, result.Device); !ids.Has(id) {
				return fmt.Errorf("it allocated %s, which is not one of them", id)
			}
		}
	}
	return nil
}

// reserveUpstream has upstream's plugin choose on the node.
func (c *cycle) reserveUpstream(
	ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodeInfo fwk.NodeInfo,
) *fwk.Status {
	whole, status := c.whole(ctx, pod)
	if !status.IsSuccess() {
		return status
	}
	if !c.isLeft(nodeInfo.Node().Name) { // else Filter has done it
		if status := c.plugin.upstream.Filter(ctx, whole, pod, nodeInfo); !status.IsSuccess() {
			return status
		}
	}
	status = c.plugin.upstream.Reserve(ctx, whole, pod, nodeInfo.Node().Name)
	// Also if it failed: Unreserve reads what it did.
	if err := adopt(state, whole); err != nil {
		return fwk.AsStatus(err)
	}
	return status
}

// adopt makes what upstream's plugin has in one state what it has in the pod's.
func adopt(state, from fwk.CycleState) error {
	data, err := from.Read(upstreamKey)
	if err != nil {
		return fmt.Errorf("read the state of upstream's plugin: %w", err)
	}
	state.Write(upstreamKey, data)
	return nil
}
