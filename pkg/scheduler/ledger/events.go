// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/util"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
)

// EventsForClaims are the events by which claims may get devices that were KubeDevice's: a node
// that lists other devices, and the deletion of a pod that had some.
func EventsForClaims() []fwk.ClusterEventWithHint {
	return []fwk.ClusterEventWithHint{
		event(fwk.Node, fwk.UpdateNodeAnnotation, afterNodeChange),
		event(fwk.AssignedPod, fwk.Delete, afterPodDeletion),
	}
}

// EventsForOthers are the events by which other pods may get devices that claims had: a claim that
// is deallocated. Where no device has two names, there are none.
func (l *Ledger) EventsForOthers() []fwk.ClusterEventWithHint {
	return []fwk.ClusterEventWithHint{event(fwk.ResourceClaim, fwk.Update, l.afterClaimChange)}
}

func event(resource fwk.EventResource, action fwk.ActionType, hint fwk.QueueingHintFn) fwk.ClusterEventWithHint {
	return fwk.ClusterEventWithHint{
		Event: fwk.ClusterEvent{Resource: resource, ActionType: action}, QueueingHintFn: hint,
	}
}

func queueIf(may bool) (fwk.QueueingHint, error) {
	if may {
		return fwk.Queue, nil
	}
	return fwk.QueueSkip, nil
}

func afterNodeChange(_ klog.Logger, _ *v1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	before, after, err := util.As[*v1.Node](oldObj, newObj)
	if err != nil {
		return fwk.Queue, err
	}
	return queueIf(before == nil || after == nil || !SameDevices(before, after))
}

func afterPodDeletion(_ klog.Logger, _ *v1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	deleted, _, err := util.As[*v1.Pod](oldObj, newObj)
	if err != nil {
		return fwk.Queue, err
	}
	return queueIf(deviceinfo.MayAllocate(deleted.Annotations[deviceinfo.Annotation]))
}

func (l *Ledger) afterClaimChange(_ klog.Logger, _ *v1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	before, after, err := util.As[*resourceapi.ResourceClaim](oldObj, newObj)
	if err != nil {
		return fwk.Queue, err
	}
	return queueIf(l.Joined() && before != nil && before.Status.Allocation != nil &&
		(after == nil || after.Status.Allocation == nil))
}
