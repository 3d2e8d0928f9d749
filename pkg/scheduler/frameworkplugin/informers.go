// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"context"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/scheduler/metrics"
	"github.com/kubedevice/kubedevice/pkg/seal"
)

func (s *Shared) nodeHandler(ctx context.Context) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { s.nodes.Observe(ctx, obj.(*v1.Node)) },
		UpdateFunc: func(before, after any) {
			s.nodes.Observe(ctx, after.(*v1.Node))
			s.afterRelisting(before.(*v1.Node), after.(*v1.Node))
		},
		DeleteFunc: func(obj any) {
			if node, ok := deletedObject[*v1.Node](obj); ok {
				s.nodes.Forget(ctx, node)
			}
		},
	}
}

// podHandler drops the reservations of pods that are deleted, judges the seals of bound pods, and
// reports who holds what to plugins that keep counters of their own.
func (s *Shared) podHandler(ctx context.Context) cache.ResourceEventHandler {
	observed := s.schedulers.Observes()
	seen := func(pod *v1.Pod) {
		s.verifySeal(pod)
		if !observed {
			return
		}
		if allocation := s.nodes.Held(pod); allocation != nil {
			s.schedulers.PodHolds(ctx, pod.Spec.NodeName, string(pod.UID), allocation)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			countForged(obj.(*v1.Pod))
			seen(obj.(*v1.Pod))
		},
		UpdateFunc: func(before, after any) {
			s.afterRewrite(before.(*v1.Pod), after.(*v1.Pod))
			seen(after.(*v1.Pod))
		},
		DeleteFunc: func(obj any) {
			if pod, ok := deletedObject[*v1.Pod](obj); ok {
				if s.nodes.PodDeleted(pod.UID) {
					s.requeuer.activateAfter(0) // queueing hints may have been called before
				}
				s.afterStray(pod)
				s.unsealed.forget(pod)
				s.schedulers.PodGone(ctx, string(pod.UID))
			}
		},
	}
}

// afterRewrite requeues pods when the allocation of a bound pod is changed or removed, and counts
// those that are forged. No queueing hint can requeue them: it would be called for every status
// update of every pod. A pod without an allocation leaves nothing, and its owner may change its
// annotation as often as they like.
func (s *Shared) afterRewrite(before, after *v1.Pod) {
	changed := annotationChanged(before, after, deviceinfo.Annotation)
	if before.Spec.NodeName != "" && deviceinfo.MayAllocate(before.Annotations[deviceinfo.Annotation]) &&
		(changed || annotationChanged(before, after, seal.Annotation)) {
		s.requeuer.activateAfter(0)
	}
	if changed || before.Spec.NodeName != after.Spec.NodeName {
		countForged(after)
	}
}

// countForged counts a bound pod whose allocation is that of another pod or node. It looks at the
// text, which the scheduler writes without spaces: users can write long annotations often, and
// decoding them here would delay all other events.
func countForged(pod *v1.Pod) {
	annotation := pod.Annotations[deviceinfo.Annotation]
	if pod.Spec.NodeName == "" || !strings.Contains(annotation, `"allocatefrom":`) {
		return
	}
	if !strings.Contains(annotation, `"nodename":"`+pod.Spec.NodeName+`"`) ||
		!strings.Contains(annotation, `"podname":"`+pod.Name+`"`) {
		metrics.ForgedAllocations.Inc()
	}
}

// annotationChanged reports whether two versions of an object have different values of an
// annotation.
func annotationChanged(before, after metav1.Object, annotation string) bool {
	return before.GetAnnotations()[annotation] != after.GetAnnotations()[annotation]
}

// deletedObject returns the object of a deletion, also when the informer missed the event and has
// only the last known state.
func deletedObject[T any](obj any) (T, bool) {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	object, ok := obj.(T)
	return object, ok
}
