// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/image"
	"github.com/kubedevice/kubedevice/test/kube"
)

// idle is a command that runs until it is killed.
var idle = []string{"sleep", "86400"}

// newPod returns a pod for a node, in a namespace that the test takes along. Pods of the same name on both nodes read the same in messages.
func newPod(t *testing.T, node *cluster.Node, command ...string) *corev1.Pod {
	t.Helper()
	return podIn(clustertest.Namespace(t, shared.Client), node, "web", command...)
}

func podIn(namespace string, node *cluster.Node, name string, command ...string) *corev1.Pod {
	pod := kube.NewPod(name, image.Busybox, command...)
	pod.Namespace = namespace
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node.Name}
	return pod
}

func create(ctx context.Context, t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	created, err := shared.Client.CreatePod(ctx, pod)
	if err != nil {
		t.Fatal(err)
	}
	return created
}

func runPod(ctx context.Context, t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	running, err := shared.Client.RunPod(ctx, pod)
	if err != nil {
		t.Fatal(err)
	}
	return running
}

// await waits until is holds for a pod. what completes the sentence "wait for the pod ...".
func await(ctx context.Context, t *testing.T, pod *corev1.Pod, what string, is func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	current, err := shared.Client.AwaitPod(ctx, pod, what, is)
	if err != nil {
		t.Fatal(err)
	}
	return current
}

// inside runs a command in a pod's container and returns what it prints.
func inside(ctx context.Context, t *testing.T, pod *corev1.Pod, command ...string) string {
	t.Helper()
	printed, err := shared.Client.Exec(ctx, pod, "main", command...)
	if err != nil {
		t.Fatal(err)
	}
	return printed
}

// container returns the status of a pod's container, which has none until the kubelet has seen the pod.
func container(pod *corev1.Pod) corev1.ContainerStatus {
	if len(pod.Status.ContainerStatuses) == 0 {
		return corev1.ContainerStatus{}
	}
	return pod.Status.ContainerStatuses[0]
}
