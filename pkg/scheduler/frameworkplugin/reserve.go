// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/scheduler/metrics"
	"github.com/kubedevice/kubedevice/pkg/scheduler/pluginhost"
)

// Reserve chooses the devices on the node and keeps them for the pod until it is seen bound. The
// pod is not changed.
func (p *Plugin) Reserve(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) *fwk.Status {
	c := p.cycleOf(state)
	if c == nil && !request.CountsExtended(pod) {
		return nil
	}
	nodeInfo, err := p.handle.SnapshotSharedLister().NodeInfos().Get(nodeName)
	if err != nil {
		return fwk.AsStatus(err)
	}
	if c == nil {
		return p.confirmPlain(ctx, pod, nodeInfo)
	}
	c.noDevices = false
	done := p.nodes.Placing()
	defer done()
	if p.nodes.Resume(nodeName, pod) {
		return nil
	}
	chosen, contended, err := p.allocate(ctx, c, pod, nodeInfo)
	switch {
	case errors.Is(err, pluginhost.ErrNoAnswer):
		return p.rejected(err)
	case err != nil && contended: // no event follows when that has changed
		return fwk.AsStatus(fmt.Errorf("reserve devices for pod %q: other pods are getting devices of its node at "+
			"this moment; it is scheduled again: %w", klog.KObj(pod), err))
	case err != nil:
		return fwk.NewStatus(fwk.Unschedulable, err.Error())
	}
	if chosen.annotation == "" {
		c.noDevices = true
		return nil
	}
	p.nodes.Reserve(nodeName, pod, chosen.holder, chosen.annotation)

	logger := klog.LoggerWithValues(klog.FromContext(ctx), logkey.Pod, klog.KObj(pod),
		logkey.Node, klog.KRef("", nodeName))
	logger.V(4).Info("Reserved devices", logkey.Allocation, chosen.annotation)
	if c.request.Forged {
		metrics.ForgedAllocations.Inc()
		logger.Info("Pod came with an allocation that the scheduler did not write; binding overwrites it. " +
			"Install the admission policies, which refuse such pods")
	}
	return nil
}

// choice is a choice of devices, and how it is written on the pod. It is empty where the node's
// kubelet counts all that the pod requests, and the pod has no annotation that would be
// overwritten.
type choice struct {
	holder     *allocation.Holder
	annotation string
}

// allocate chooses the pod's devices. contended says that other pods have reservations on the node
// which Filter could not see.
func (p *Plugin) allocate(
	ctx context.Context, c *cycle, pod *v1.Pod, nodeInfo fwk.NodeInfo,
) (chosen choice, contended bool, err error) {
	node, contended, err := p.nodes.LatestState(ctx, nodeInfo, pod)
	if err != nil {
		return choice{}, false, err
	}
	info, err := p.schedulers.Allocate(ctx, node, c.request)
	if err != nil {
		return choice{}, contended, err
	}
	if refused := p.exceeded(c, nodeInfo.Node().Name, pod, info); refused != nil {
		return choice{}, contended, refused.AsError()
	}
	holder := allocation.NewHolder(string(pod.UID), info, c.request.Containers)
	if _, annotated := pod.Annotations[deviceinfo.Annotation]; !annotated && holder.Empty() {
		return choice{}, false, nil
	}
	annotation, err := deviceinfo.EncodePod(info)
	if err == nil {
		err = deviceinfo.CheckSize(pod.Annotations, annotation, p.seals.bytes())
	}
	if err == nil {
		err = deviceinfo.CheckContainers(info)
	}
	if err != nil {
		return choice{}, false, err
	}
	return choice{holder, annotation}, contended, nil
}

// confirmPlain checks again a pod that seemed to request no device and is about to get a node. A
// node's inventory can reach the scheduler's snapshot before it reaches the plugin; bound as a
// plain pod, the pod would never get its devices. What other nodes list is of no concern here.
func (p *Plugin) confirmPlain(ctx context.Context, pod *v1.Pod, nodeInfo fwk.NodeInfo) *fwk.Status {
	if p.nodes.RequestsFrom(ctx, nodeInfo.Node(), pod) {
		return fwk.AsStatus(fmt.Errorf("reserve devices for pod %q: its node has only now begun to list them; "+
			"it is scheduled again", klog.KObj(pod)))
	}
	return nil
}

// Unreserve releases what Reserve took. It is idempotent and looks nothing up. Devices of a binding
// whose outcome is unknown stay with the pod: see Bind.
func (p *Plugin) Unreserve(_ context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) {
	if p.cycleOf(state) != nil {
		p.nodes.Unreserve(nodeName, pod.UID)
	}
}
