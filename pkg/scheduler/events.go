// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"cmp"
	"context"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/util"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
)

// EventsToRegister names what can make room for a pod that this plugin rejected: a node whose inventory is new or has
// changed, a pod with devices that goes, and a change of the pod's own annotation. When in doubt the pod is tried again.
// What no such event tells of, waker does.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	nodeChange := fwk.Add | fwk.UpdateNodeAnnotation | fwk.UpdateNodeAllocatable
	return []fwk.ClusterEventWithHint{
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: nodeChange}, QueueingHintFn: p.afterNodeChange},
		{Event: fwk.ClusterEvent{Resource: fwk.AssignedPod, ActionType: fwk.Delete}, QueueingHintFn: p.afterPodGone},
		{Event: fwk.ClusterEvent{Resource: fwk.TargetPod, ActionType: fwk.Update}, QueueingHintFn: p.afterOwnChange},
	}, nil
}

func (p *Plugin) afterNodeChange(logger klog.Logger, pod *v1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	before, after, err := util.As[*v1.Node](oldObj, newObj)
	if err != nil {
		return fwk.Queue, err
	}
	if before != nil && before.Annotations[deviceinfo.Annotation] == after.Annotations[deviceinfo.Annotation] &&
		apiequality.Semantic.DeepEqual(before.Status.Allocatable, after.Status.Allocatable) {
		return fwk.QueueSkip, nil
	}
	return p.hint(logger, pod, after.Name), nil
}

func (p *Plugin) afterPodGone(logger klog.Logger, pod *v1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	gone, _, err := util.As[*v1.Pod](oldObj, newObj)
	if err != nil {
		return fwk.Queue, err
	}
	if !p.nodes.MayHold(gone) {
		return fwk.QueueSkip, nil
	}
	where := cmp.Or(gone.Spec.NodeName, gone.Status.NominatedNodeName)
	if where == "" {
		return fwk.Queue, nil
	}
	return p.hint(logger, pod, where), nil
}

// hint returns whether to try the pod again after something has changed on the node.
func (p *Plugin) hint(logger klog.Logger, pod *v1.Pod, nodeName string) fwk.QueueingHint {
	if p.mayFit(klog.NewContext(p.background.ctx, logger), pod, nodeName) {
		return fwk.Queue
	}
	return fwk.QueueSkip
}

func (p *Plugin) afterOwnChange(_ klog.Logger, _ *v1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	before, after, err := util.As[*v1.Pod](oldObj, newObj)
	if err != nil {
		return fwk.Queue, err
	}
	if before.Annotations[deviceinfo.Annotation] == after.Annotations[deviceinfo.Annotation] {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}
