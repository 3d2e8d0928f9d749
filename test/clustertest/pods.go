// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package clustertest

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubedevice/kubedevice/test/await"
	"github.com/kubedevice/kubedevice/test/image"
	"github.com/kubedevice/kubedevice/test/kube"
)

// Idle is the command of a container that waits, and ends at once on a signal.
var Idle = []string{"sh", "-c", "trap exit TERM; sleep 86400 & wait"}

// IdlePod returns a pod with one container, main, which is idle and requests devices by nothing but
// its limits: so many of each resource.
func IdlePod(namespace, name string, limits map[corev1.ResourceName]int64) *corev1.Pod {
	pod := kube.NewPod(name, image.Busybox, Idle...)
	pod.Namespace = namespace
	pod.Spec.Containers[0].Resources = Limits(limits)
	return pod
}

// Limits are resources that have limits alone: so many of each.
func Limits(counts map[corev1.ResourceName]int64) corev1.ResourceRequirements {
	var limits corev1.ResourceList
	for name, count := range counts {
		if limits == nil {
			limits = corev1.ResourceList{}
		}
		limits[name] = *resource.NewQuantity(count, resource.DecimalSI)
	}
	return corev1.ResourceRequirements{Limits: limits}
}

// On makes the scheduler put a pod on a node.
func On(node string, pod *corev1.Pod) *corev1.Pod {
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	return pod
}

// CreatePod creates a pod, or ends the test.
func CreatePod(ctx context.Context, t testing.TB, client *kube.Client, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	created, err := client.CreatePod(ctx, pod)
	if err != nil {
		t.Fatal(err)
	}
	return created
}

// RunPod creates a pod and waits until it is ready, or ends the test.
func RunPod(ctx context.Context, t testing.TB, client *kube.Client, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	running, err := client.RunPod(ctx, pod)
	if err != nil {
		t.Fatal(err)
	}
	return running
}

// AwaitPod waits until is holds for a pod, or ends the test. what completes the sentence "wait for
// the pod ...".
func AwaitPod(ctx context.Context, t testing.TB, client *kube.Client, pod *corev1.Pod, what string,
	is func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	now, err := client.AwaitPod(ctx, pod, what, is)
	if err != nil {
		t.Fatal(err)
	}
	return now
}

// DeletePod deletes a pod and waits until it is gone, or ends the test.
func DeletePod(ctx context.Context, t testing.TB, client *kube.Client, pod *corev1.Pod) {
	t.Helper()
	if err := client.DeletePod(ctx, pod); err != nil {
		t.Fatal(err)
	}
}

// RestartContainer ends the process of a pod's only container, main, and waits until it runs again,
// or ends the test.
func RestartContainer(ctx context.Context, t testing.TB, client *kube.Client, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	restarted, err := client.RestartContainer(ctx, pod)
	if err != nil {
		t.Fatal(err)
	}
	return restarted
}

// Await waits until a condition holds. what completes the sentence "wait for ...". The test fails
// when ctx ends first.
func Await(ctx context.Context, t testing.TB, what string, holds func() bool) {
	t.Helper()
	if err := await.Until(ctx, what, func(context.Context) (bool, error) { return holds(), nil }); err != nil {
		t.Fatal(err)
	}
}

// AwaitSuccess tries until there is no error. what completes the sentence "wait for ...". The test
// fails with the last error when ctx ends first.
func AwaitSuccess(ctx context.Context, t testing.TB, what string, try func() error) {
	t.Helper()
	if err := await.Success(ctx, what, func(context.Context) error { return try() }); err != nil {
		t.Fatal(err)
	}
}
