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

// newPod returns a pod for a node, in a namespace that the test takes along. Pods of the same name
// on both nodes read the same in messages.
func newPod(t *testing.T, node *cluster.Node, command ...string) *corev1.Pod {
	t.Helper()
	return podIn(clustertest.Namespace(t, shared.Client), node, "web", command...)
}

func podIn(namespace string, node *cluster.Node, name string, command ...string) *corev1.Pod {
	pod := kube.NewPod(name, image.Busybox, command...)
	pod.Namespace = namespace
	return clustertest.On(node.Name, pod)
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

// container returns the status of a pod's container, which has none until the kubelet has seen the
// pod.
func container(pod *corev1.Pod) corev1.ContainerStatus {
	if len(pod.Status.ContainerStatuses) == 0 {
		return corev1.ContainerStatus{}
	}
	return pod.Status.ContainerStatuses[0]
}
