// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/test/clustertest"
)

// The device fails between the binding and the first creation of any container: the pod waits for
// a volume. Neither pod nor node say what is to happen.
func TestAPodWhoseDeviceFailsBeforeItStartsIsEvictedSoon(t *testing.T) {
	ctx := begin(t)
	node := shared.Nodes[0].Name
	namespace := clustertest.Namespace(t, shared.Client)
	pod := clustertest.On(node, gpuPod(namespace, "waiting", 1))
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "late", VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "late"}},
	}})
	pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts,
		corev1.VolumeMount{Name: "late", MountPath: "/late"})
	pod = clustertest.CreatePod(ctx, t, shared.Client, pod)
	pod = clustertest.AwaitPod(ctx, t, shared.Client, pod, "to be bound", func(now *corev1.Pod) bool {
		return now.Spec.NodeName != ""
	})
	path := slices.Sorted(maps.Keys(allocated(t, pod)))[0]
	_, name, _ := strings.Cut(path, "/gpu/")
	failed, _, _ := strings.Cut(name, "/")
	makeUnhealthy(t, node, failed)
	awaitGPUs(ctx, t, node, perNode-1)
	if _, err := shared.Client.CoreV1().ConfigMaps(namespace).Create(ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "late"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	text := clustertest.AwaitEvent(ctx, t, shared.Client, pod, "DeviceUnhealthy")
	if !strings.Contains(text, failed) || !strings.Contains(text, "the pod is evicted if it is so at ") {
		t.Errorf("the event says %q", text)
	}
	clustertest.AwaitEvent(ctx, t, shared.Client, pod, "DeviceFailureEvicted")
	clustertest.Await(ctx, t, "the pod to be gone", func() bool {
		now, err := shared.Client.CoreV1().Pods(namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err) || err == nil && now.UID != pod.UID
	})
}
