// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/seal"
)

// Watch keeps the registry up to date with the API server's pods of the node until ctx is done.
// During an outage of the API server, the registry keeps its data.
func (r *Registry) Watch(ctx context.Context, client kubernetes.Interface, nodeName string) {
	onNode := fields.OneTermEqualSelector("spec.nodeName", nodeName).String()
	pods := client.CoreV1().Pods(metav1.NamespaceAll)
	lister := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = onNode
			return pods.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = onNode
			return pods.Watch(ctx, options)
		},
	}
	store, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.ToListWatcherWithWatchListSemantics(lister, client),
		ObjectType:    &corev1.Pod{},
		Transform:     strip,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: func(object any) { r.noteObject(object) },
			UpdateFunc: func(old, object any) {
				// A pod that was deleted and created again while the watch was down is one update
				// to it.
				if old.(*corev1.Pod).UID != object.(*corev1.Pod).UID {
					r.forget(old)
				}
				r.noteObject(object)
			},
			DeleteFunc: func(object any) { r.forget(object) },
		},
	})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		controller.RunWithContext(ctx)
	}()
	if cache.WaitForCacheSync(ctx.Done(), controller.HasSynced) {
		present := map[string]bool{}
		for _, object := range store.List() {
			present[string(object.(*corev1.Pod).UID)] = true
		}
		r.keepOnly(present)
	}
	<-stopped
}

func (r *Registry) noteObject(object any) {
	pod := object.(*corev1.Pod)
	r.set(string(pod.UID), summarize(pod))
}

// forget handles the deletion event of a watch: it has the last known state if the watch missed the
// deletion.
func (r *Registry) forget(object any) {
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	if pod, ok := object.(*corev1.Pod); ok {
		r.remove(string(pod.UID))
	}
}

// strip removes the unused parts of a pod, so that a node with many pods takes little memory.
func strip(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	kept := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       pod.Namespace,
			Name:            pod.Name,
			UID:             pod.UID,
			ResourceVersion: pod.ResourceVersion,

			DeletionTimestamp: pod.DeletionTimestamp,
		},
		Status: corev1.PodStatus{Phase: pod.Status.Phase, StartTime: pod.Status.StartTime},
	}
	keep := func(key string) {
		if value, there := pod.Annotations[key]; there {
			if kept.Annotations == nil {
				kept.Annotations = map[string]string{}
			}
			kept.Annotations[key] = value
		}
	}
	if !isMirror(pod) {
		keep(seal.Annotation)
		keep(deviceinfo.Annotation)
	}
	keep(deviceinfo.OnDeviceFailureAnnotation)
	keep(deviceinfo.DeviceFailureGracePeriodAnnotation)
	keep(deviceinfo.OnShareExceededAnnotation)
	for _, condition := range pod.Status.Conditions {
		if condition.Type == deviceinfo.DevicesHealthyCondition {
			kept.Status.Conditions = []corev1.PodCondition{condition}
		}
	}
	kept.Status.InitContainerStatuses = stripStatuses(pod.Status.InitContainerStatuses)
	kept.Status.ContainerStatuses = stripStatuses(pod.Status.ContainerStatuses)
	kept.Spec.ServiceAccountName, kept.Spec.Tolerations = pod.Spec.ServiceAccountName, pod.Spec.Tolerations
	kept.Spec.RestartPolicy = pod.Spec.RestartPolicy
	kept.Spec.TerminationGracePeriodSeconds = pod.Spec.TerminationGracePeriodSeconds
	kept.Spec.InitContainers = stripContainers(pod.Spec.InitContainers)
	kept.Spec.Containers = stripContainers(pod.Spec.Containers)
	return kept, nil
}

func stripContainers(containers []corev1.Container) []corev1.Container {
	kept := make([]corev1.Container, len(containers))
	for i, container := range containers {
		kept[i] = corev1.Container{
			Name:          container.Name,
			Resources:     container.Resources,
			RestartPolicy: container.RestartPolicy,

			RestartPolicyRules: container.RestartPolicyRules,
		}
		for _, env := range container.Env {
			kept[i].Env = append(kept[i].Env, corev1.EnvVar{Name: env.Name})
		}
		if len(container.EnvFrom) > 0 {
			kept[i].EnvFrom = make([]corev1.EnvFromSource, 1) // notes that there is one
		}
	}
	return kept
}
