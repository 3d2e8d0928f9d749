// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/scheduler/dispatch"
)

// Reserve chooses the devices on the node and keeps them for the pod until it is seen bound. The pod is not changed.
func (p *Plugin) Reserve(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) *fwk.Status {
	c := cycleOf(state)
	if c == nil {
		return nil
	}
	nodeInfo, err := p.handle.SnapshotSharedLister().NodeInfos().Get(nodeName)
	if err != nil {
		return fwk.AsStatus(err)
	}
	node, err := p.nodes.Of(ctx, nodeInfo, pod, true)
	if err != nil {
		return fwk.NewStatus(fwk.Unschedulable, err.Error())
	}
	allocation, err := p.schedulers.Allocate(ctx, node, c.request)
	if err != nil {
		return fwk.NewStatus(fwk.Unschedulable, err.Error())
	}
	annotation, err := deviceinfo.EncodePod(allocation)
	if err == nil {
		err = deviceinfo.CheckSize(pod.Annotations, annotation)
	}
	if err != nil {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, err.Error())
	}
	p.nodes.Reserve(nodeName, dispatch.NewHolder(string(pod.UID), allocation, c.request.Containers), annotation)
	klog.FromContext(ctx).V(4).Info("Reserved devices", "pod", klog.KObj(pod), "node", klog.KRef("", nodeName), "allocation", annotation)
	return nil
}

// Unreserve gives back what Reserve took. It is idempotent and looks nothing up. Devices of a binding whose outcome is
// unknown stay with the pod: see Bind.
func (p *Plugin) Unreserve(_ context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) {
	if cycleOf(state) != nil {
		p.nodes.Unreserve(nodeName, pod.UID)
	}
}
