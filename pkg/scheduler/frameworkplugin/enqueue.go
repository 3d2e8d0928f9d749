// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"cmp"
	"context"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/util"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/request/names"
)

// EventsToRegister lists the events that may make a pod schedulable that this plugin rejected: a
// node with a new or changed inventory, or with other taints of its devices, a deleted pod with
// devices, and a change of the pod's own annotations or tolerations. Where DRA drivers publish
// devices of inventories, a claim that is deallocated is another one. When in doubt the pod is
// queued. The requeuer covers what no such event reports.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	event := func(resource fwk.EventResource, action fwk.ActionType, hint fwk.QueueingHintFn) fwk.ClusterEventWithHint {
		return fwk.ClusterEventWithHint{
			Event: fwk.ClusterEvent{Resource: resource, ActionType: action}, QueueingHintFn: hint,
		}
	}
	all := []fwk.ClusterEventWithHint{
		event(fwk.Node, fwk.Add|fwk.UpdateNodeAnnotation|fwk.UpdateNodeAllocatable, p.afterNodeChange),
		event(fwk.AssignedPod, fwk.Delete, p.afterPodDeletion),
		event(fwk.TargetPod, fwk.Update, p.afterOwnChange),
	}
	if p.ledger != nil {
		all = append(all, p.ledger.EventsForOthers()...)
	}
	return all, nil
}

func (p *Plugin) afterNodeChange(_ klog.Logger, pod *v1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	before, after, err := util.As[*v1.Node](oldObj, newObj)
	if err != nil {
		return fwk.Queue, err
	}
	if before != nil && !annotationChanged(before, after, deviceinfo.Annotation) &&
		!annotationChanged(before, after, deviceinfo.HoldersAnnotation) &&
		!annotationChanged(before, after, deviceinfo.DeviceTaintsAnnotation) &&
		!annotationChanged(before, after, deviceinfo.AttributesAnnotation) &&
		!annotationChanged(before, after, deviceinfo.ShareEnforcementAnnotation) &&
		apiequality.Semantic.DeepEqual(before.Status.Allocatable, after.Status.Allocatable) {
		return fwk.QueueSkip, nil
	}
	return p.hint(pod, after.Name), nil
}

func (p *Plugin) afterPodDeletion(_ klog.Logger, pod *v1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	deleted, _, err := util.As[*v1.Pod](oldObj, newObj)
	if err != nil {
		return fwk.Queue, err
	}
	if !p.nodes.Requests.MayHold(deleted) {
		return fwk.QueueSkip, nil
	}
	if deleted.Namespace == pod.Namespace && p.quotas.countParts(pod.Namespace, p.schedulers.CountedParts()) {
		return fwk.Queue, nil // what it held may be what a quota has lacked, on any node
	}
	nodeName := cmp.Or(deleted.Spec.NodeName, deleted.Status.NominatedNodeName)
	if nodeName == "" {
		return fwk.Queue, nil
	}
	return p.hint(pod, nodeName), nil
}

// hint returns whether to queue the pod after something has changed on the node.
func (p *Plugin) hint(pod *v1.Pod, nodeName string) fwk.QueueingHint {
	if p.mayFit(pod, nodeName) {
		return fwk.Queue
	}
	return fwk.QueueSkip
}

func (p *Plugin) afterOwnChange(_ klog.Logger, _ *v1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	before, after, err := util.As[*v1.Pod](oldObj, newObj)
	if err != nil {
		return fwk.Queue, err
	}
	if !annotationChanged(before, after, deviceinfo.Annotation) && names.SameAnnotations(before, after) &&
		!annotationChanged(before, after, deviceinfo.LeastEnforcementAnnotation) &&
		!annotationChanged(before, after, deviceinfo.OnShareExceededAnnotation) &&
		apiequality.Semantic.DeepEqual(before.Spec.Tolerations, after.Spec.Tolerations) {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}
