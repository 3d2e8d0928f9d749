// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
)

func (s *Shared) nodeHandler(ctx context.Context) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { s.nodes.Observe(ctx, obj.(*v1.Node)) },
		UpdateFunc: func(_, obj any) { s.nodes.Observe(ctx, obj.(*v1.Node)) },
		DeleteFunc: func(obj any) {
			if node, ok := deleted[*v1.Node](obj); ok {
				s.nodes.Forget(ctx, node)
			}
		},
	}
}

// podHandler drops the reservations of pods that are deleted, and reports who holds what to plugins
// that keep counters of their own.
func (s *Shared) podHandler(ctx context.Context) cache.ResourceEventHandler {
	handler := cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) { s.afterRewrite(before.(*v1.Pod), after.(*v1.Pod)) },
		DeleteFunc: func(obj any) {
			if pod, ok := deleted[*v1.Pod](obj); ok {
				s.nodes.PodDeleted(pod.UID)
				s.schedulers.PodGone(ctx, string(pod.UID))
			}
		},
	}
	if s.schedulers.Observes() {
		report := func(pod *v1.Pod) {
			if allocation, err := deviceinfo.PodAllocation(pod); err == nil {
				s.schedulers.PodHolds(ctx, pod.Spec.NodeName, string(pod.UID), allocation)
			}
		}
		handler.AddFunc = func(obj any) { report(obj.(*v1.Pod)) }
		handler.UpdateFunc = func(before, after any) {
			s.afterRewrite(before.(*v1.Pod), after.(*v1.Pod))
			report(after.(*v1.Pod))
		}
	}
	return handler
}

// afterRewrite requeues pods when the allocation of a bound pod is changed or removed. No queueing
// hint can: it would be called for every status update of every pod.
func (s *Shared) afterRewrite(before, after *v1.Pod) {
	if before.Spec.NodeName != "" &&
		before.Annotations[deviceinfo.Annotation] != after.Annotations[deviceinfo.Annotation] {
		s.requeuer.after(0)
	}
}

// deleted returns the object of a deletion, also when the informer missed the event and has only
// the last known state.
func deleted[T any](obj any) (T, bool) {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	object, ok := obj.(T)
	return object, ok
}
