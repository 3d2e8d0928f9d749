// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/scheduler/metrics"
)

// unallocatedPods is what is done about pods that request devices and were bound without any, as by
// an upstream scheduler that led before this one.
type unallocatedPods struct {
	client   kubernetes.Interface
	evict    bool
	reported map[types.UID]bool // in an event; only the rounds use it
}

// checkUnallocated counts those pods, reports some that were not reported yet, each with an event,
// and evicts some of those that it may evict.
func (s *Shared) checkUnallocated(ctx context.Context) {
	found, err := s.findUnallocated(ctx)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot count pods that were bound without devices")
		return
	}
	metrics.UnallocatedPods.Set(float64(len(found)))
	reported, reports, evictions := map[types.UID]bool{}, 0, 0
	for _, pod := range found {
		evicts := s.mayEvict(pod)
		known := s.unallocated.reported[pod.UID]
		if !known && reports < maxReports {
			s.recorder.Eventf(pod, nil, v1.EventTypeWarning, "BoundWithoutDevices", "Scheduling", "%s",
				unallocatedText(pod, evicts))
			known = true
			reports++
		}
		reported[pod.UID] = known
		if evicts && evictions < maxReports {
			s.evict(ctx, pod)
			evictions++
		}
	}
	s.unallocated.reported = reported
}

// findUnallocated returns the bound pods that request devices and were bound without any. Those
// that are being deleted are left out, and the informer has none that have ended.
func (s *Shared) findUnallocated(ctx context.Context) ([]*v1.Pod, error) {
	nodes, err := s.nodeLister.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	var found []*v1.Pod
	for _, node := range nodes {
		pods, err := s.PodsOn(node.Name)
		if err != nil {
			return nil, fmt.Errorf("list the pods of node %q: %w", node.Name, err)
		}
		found = append(found, s.nodes.Unallocated(ctx, node, pods)...)
	}
	return slices.DeleteFunc(found, func(pod *v1.Pod) bool { return pod.DeletionTimestamp != nil }), nil
}

// mayEvict reports whether a pod that was bound without devices is evicted.
//
// A controller must make it again. It must not have started: one that has may have devices that
// its node's kubelet gave it before the node was ours. And it must be older than this scheduler's
// lead: a scheduler that has bound it meanwhile would do the same with the next one, without end.
func (s *Shared) mayEvict(pod *v1.Pod) bool {
	return s.unallocated.evict && metav1.GetControllerOf(pod) != nil && !isStatic(pod) &&
		pod.Status.Phase == v1.PodPending && pod.CreationTimestamp.Time.Before(*s.began.Load())
}

// isStatic reports whether the pod shows a static pod of its node, which only the node can delete.
func isStatic(pod *v1.Pod) bool { return pod.Annotations[v1.MirrorPodAnnotationKey] != "" }

// evict evicts the pod if no disruption budget forbids it; else a later round tries again.
func (s *Shared) evict(ctx context.Context, pod *v1.Pod) {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), logkey.Pod, klog.KObj(pod), logkey.Node,
		klog.KRef("", pod.Spec.NodeName))
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := s.unallocated.client.PolicyV1().Evictions(pod.Namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))},
	})
	switch {
	case err == nil:
		logger.Info("Evicted a pod that was bound without its devices")
	case !apierrors.IsNotFound(err):
		logger.Error(err, "Cannot evict a pod that was bound without its devices; will retry")
	}
}

// unallocatedText says who bound a pod without its devices, what follows, and what to do.
func unallocatedText(pod *v1.Pod, evicts bool) string {
	origin := fmt.Sprintf("by another scheduler under the name %q, or by a user who set spec.nodeName",
		pod.Spec.SchedulerName)
	follows := "its node starts no container of it"
	if pod.Status.Phase == v1.PodRunning {
		follows = "it runs, and the devices that it may use can be given to other pods, too"
	}
	next := "delete it, and create it again without spec.nodeName"
	switch {
	case isStatic(pod):
		origin, follows = "by the node itself", "static pods get no devices"
		next = "remove the request from its manifest"
	case evicts:
		next = "it is evicted, and its controller makes it again"
	case metav1.GetControllerOf(pod) != nil:
		next = "delete it, and its controller makes it again"
	}
	return fmt.Sprintf("the pod requests devices and was bound to node %q without any, %s: %s; %s",
		pod.Spec.NodeName, origin, follows, next)
}
