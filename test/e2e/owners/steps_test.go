// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package owners

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
)

// start does a step of a move.
func start(t *testing.T, step func() error) {
	t.Helper()
	if err := step(); err != nil {
		t.Fatal(err)
	}
}

// createPod creates a pod for a node that requests a GPU.
func createPod(ctx context.Context, t *testing.T, node owned, namespace, name string) *corev1.Pod {
	t.Helper()
	pod := clustertest.IdlePod(namespace, name, map[corev1.ResourceName]int64{gpus: 1})
	return clustertest.CreatePod(ctx, t, shared.Client, clustertest.On(node.Name, pod))
}

// restartKubelet restarts the kubelet. It has admitted its pods, and knows which are gone, when it
// runs another.
func restartKubelet(ctx context.Context, t *testing.T, node owned, namespace, name string) {
	t.Helper()
	start(t, func() error { return node.Kubelet.Restart(ctx) })
	clustertest.RunPod(ctx, t, shared.Client, clustertest.On(node.Name, clustertest.IdlePod(namespace, name, nil)))
}

// awaitReady waits until a pod is ready, and ends the test if it fails.
func awaitReady(ctx context.Context, t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	pod = clustertest.AwaitPod(ctx, t, shared.Client, pod, "to be ready or to fail", func(pod *corev1.Pod) bool {
		return kube.Ready(pod) || pod.Status.Phase == corev1.PodFailed
	})
	if pod.Status.Phase == corev1.PodFailed {
		t.Fatal(shared.Client.Describe(ctx, pod))
	}
	return pod
}

// awaitOffer waits until so many GPUs are allocatable, and the node's annotation has them or does
// not.
func awaitOffer(ctx context.Context, t *testing.T, node owned, count int64, annotated bool) {
	t.Helper()
	what := fmt.Sprintf("to offer %d GPUs (in its annotation: %t)", count, annotated)
	if _, err := shared.Client.AwaitNode(ctx, node.Name, what, func(now *corev1.Node) bool {
		offered := now.Status.Allocatable[gpus]
		return offered.Value() == count &&
			strings.Contains(now.Annotations[deviceinfo.Annotation], string(gpus)) == annotated
	}); err != nil {
		t.Fatal(err)
	}
}

// awaitPluginsDevices waits until the node lists the devices of the plugin at kubecri and none of
// the file: a pod would be bound to one that is not there any more.
func awaitPluginsDevices(ctx context.Context, t *testing.T, node owned) {
	t.Helper()
	isListed := func(now *corev1.Node) bool {
		list := now.Annotations[deviceinfo.Annotation]
		return strings.Contains(list, "/nvidia.com:gpu/") && !strings.Contains(list, "/gpugrp0/")
	}
	if _, err := shared.Client.AwaitNode(ctx, node.Name, "to list the plugin's GPUs alone", isListed); err != nil {
		t.Fatal(err)
	}
}

// awaitReadiness waits until the readiness of the node's kubecri says something.
func awaitReadiness(ctx context.Context, t *testing.T, node owned, what string) {
	t.Helper()
	clustertest.Await(ctx, t, "readiness to say "+what, func() bool {
		if answer, err := node.Get(ctx, "/readyz?verbose"); err == nil && strings.Contains(answer, what) {
			return true
		}
		return false
	})
}

// awaitEvent waits until the node has an event of the conflict.
func awaitEvent(ctx context.Context, t *testing.T, node owned, message string) {
	t.Helper()
	clustertest.Await(ctx, t, "an event ResourceConflict", func() bool {
		events, err := shared.Client.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{
			FieldSelector: "reason=ResourceConflict,involvedObject.name=" + node.Name,
		})
		if err == nil && slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
			return strings.Contains(e.Message, message)
		}) {
			return true
		}
		return false
	})
}

// awaitConflict waits until readiness, metric and event say that the kubelet has the GPUs, too.
func awaitConflict(ctx context.Context, t *testing.T, node owned) {
	t.Helper()
	awaitReadiness(ctx, t, node, "resource nvidia.com/gpu is registered with the kubelet, too")
	clustertest.AwaitMetric(ctx, t, node.Node, `kubecri_resource_conflicts{resource="nvidia.com/gpu"} 1`)
	awaitEvent(ctx, t, node, "registered with the kubelet, too")
}

// awaitPodEvent waits until a pod, which must not fail, has an event with a message.
func awaitPodEvent(ctx context.Context, t *testing.T, pod *corev1.Pod, message string) {
	t.Helper()
	clustertest.Await(ctx, t, "an event of pod "+pod.Name, func() bool {
		events, err := shared.Client.PodEvents(ctx, pod)
		if err == nil && slices.ContainsFunc(events, func(e corev1.Event) bool {
			return strings.Contains(e.Message, message)
		}) {
			return true
		}
		return false
	})
}

// expectOnce fails the test unless each pod has one GPU to itself.
func expectOnce(ctx context.Context, t *testing.T, pods ...*corev1.Pod) {
	t.Helper()
	holders := map[string]string{}
	for _, pod := range pods {
		printed, err := shared.Client.Exec(ctx, pod, "main", "sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES")
		if err != nil {
			t.Fatal(err)
		}
		gpu := strings.TrimSpace(printed)
		if !strings.HasPrefix(gpu, "GPU-") || holders[gpu] != "" {
			t.Errorf("pod %s has GPU %q, which pod %q has, too", pod.Name, gpu, holders[gpu])
		}
		holders[gpu] = pod.Name
	}
}
