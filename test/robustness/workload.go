// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package robustness

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/test/await"
	"github.com/kubedevice/kubedevice/test/image"
	"github.com/kubedevice/kubedevice/test/kube"
	"github.com/kubedevice/kubedevice/test/observe"
)

// pollInterval is how often a condition is looked at that nothing announces.
const pollInterval = 100 * time.Millisecond

// idle is the command of a container that waits and ends at once on a signal.
var idle = []string{"sh", "-c", "trap exit TERM; sleep 86400 & wait"}

// workload is some pods whose containers request a device each. It is created at once, and deleted
// at once.
type workload struct {
	client     *kube.Client
	namespace  string
	name       string
	containers int // of each pod
	// annotations are those of each pod.
	annotations map[string]string

	created []*corev1.Pod
}

// create creates some more pods, with this interval.
func (w *workload) create(ctx context.Context, pods int, interval time.Duration) error {
	ticker := time.NewTicker(max(interval, 1))
	defer ticker.Stop()
	for range pods {
		pod, err := w.client.CreatePod(ctx, w.pod(fmt.Sprintf("%s-%03d", w.name, len(w.created))))
		if err != nil {
			return err
		}
		w.created = append(w.created, pod)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (w *workload) pod(name string) *corev1.Pod {
	pod := kube.NewPod(name, image.Busybox)
	pod.Namespace, pod.Annotations = w.namespace, w.annotations
	// A pod without grace is gone from the API server before its container is.
	pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](30)
	pod.Spec.Containers = nil
	for i := range w.containers {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
			Name: fmt.Sprintf("c%d", i), Image: image.Busybox, Command: idle,
			Resources: corev1.ResourceRequirements{
				Limits: corev1.ResourceList{observe.Resource: *resource.NewQuantity(1, resource.DecimalSI)},
			},
		})
	}
	return pod
}

// state returns the pods that are ready, as they are, and the others, as they were created.
func (w *workload) state(ctx context.Context) (ready []corev1.Pod, others []*corev1.Pod, err error) {
	list, err := w.client.CoreV1().Pods(w.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, err
	}
	for _, pod := range w.created {
		i := slices.IndexFunc(list.Items, func(now corev1.Pod) bool { return now.UID == pod.UID })
		if i >= 0 && kube.Ready(&list.Items[i]) {
			ready = append(ready, list.Items[i])
		} else {
			others = append(others, pod)
		}
	}
	return ready, others, nil
}

// awaitReady waits until all pods are ready, or limit is over. It returns those that are, and what
// the others do.
func (w *workload) awaitReady(ctx context.Context, limit time.Duration) (ready []corev1.Pod, lost []string, err error) {
	deadline := time.After(limit)
	for {
		ready, others, err := w.state(ctx)
		if err != nil || len(others) == 0 {
			return ready, nil, err
		}
		select {
		case <-time.After(pollInterval):
		case <-deadline:
			for _, pod := range others {
				lost = append(lost, fmt.Sprintf("pod %s is not ready:\n%s", pod.Name, w.client.Describe(ctx, pod)))
			}
			return ready, lost, nil
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
}

// awaitReadyOr waits until all pods are ready, or something else ended; it reports which, and that
// one's error.
func (w *workload) awaitReadyOr(ctx context.Context, other <-chan error) (ended bool, err error) {
	for {
		_, others, err := w.state(ctx)
		if err != nil || len(others) == 0 {
			return false, err
		}
		select {
		case err := <-other:
			return true, err
		case <-time.After(pollInterval):
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

// uids returns the UIDs of the pods.
func (w *workload) uids() []string {
	var uids []string
	for _, pod := range w.created {
		uids = append(uids, string(pod.UID))
	}
	return uids
}

// remove deletes the pods; gone waits until they are.
func (w *workload) remove(ctx context.Context) error {
	var group errgroup.Group
	for _, pod := range w.created {
		group.Go(func() error {
			err := w.client.CoreV1().Pods(w.namespace).Delete(ctx, pod.Name,
				metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		})
	}
	return group.Wait()
}

func (w *workload) gone(ctx context.Context) error {
	return await.Until(ctx, "the pods of "+w.name+" to be gone", func(ctx context.Context) (bool, error) {
		list, err := w.client.CoreV1().Pods(w.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		ours := w.uids()
		isOurs := func(pod corev1.Pod) bool { return slices.Contains(ours, string(pod.UID)) }
		return !slices.ContainsFunc(list.Items, isOurs), nil
	})
}
