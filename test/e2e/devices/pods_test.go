// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"context"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/image"
	"github.com/kubedevice/kubedevice/test/kube"
	"github.com/kubedevice/kubedevice/test/observe"
)

// idle is the command of a container that waits and ends at once when it is told to.
var idle = []string{"sh", "-c", "trap exit TERM; sleep 86400 & wait"}

// gpuPod returns a pod whose only container, main, asks for a number of GPUs by nothing but a limit.
func gpuPod(namespace, name string, count int64) *corev1.Pod {
	pod := kube.NewPod(name, image.Busybox, idle...)
	pod.Namespace = namespace
	// A pod without grace is gone from the API server before its container is.
	pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](30)
	pod.Spec.Containers[0].Resources = gpus(count)
	return pod
}

// gpus are resources of that many GPUs, none for 0.
func gpus(count int64) corev1.ResourceRequirements {
	if count == 0 {
		return corev1.ResourceRequirements{}
	}
	return corev1.ResourceRequirements{Limits: corev1.ResourceList{observe.Resource: *resource.NewQuantity(count, resource.DecimalSI)}}
}

// on makes the scheduler put the pod on a node.
func on(node string, pod *corev1.Pod) *corev1.Pod {
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	return pod
}

// newNamespace makes a namespace for a test. After the test its pods are deleted all at once, so that those that wait don't take the
// place of those that run.
func newNamespace(t *testing.T) string {
	t.Helper()
	namespace := clustertest.Namespace(t, shared.Client)
	t.Cleanup(func() { deletePods(t, namespace) })
	return namespace
}

func deletePods(t *testing.T, namespace string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	pods, err := shared.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Error(err)
		return
	}
	var group errgroup.Group
	for _, pod := range pods.Items {
		group.Go(func() error { return shared.Client.DeletePod(ctx, &pod) })
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
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
	return await(ctx, t, create(ctx, t, pod), "to be ready", kube.Ready)
}

func await(ctx context.Context, t *testing.T, pod *corev1.Pod, what string, is func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	current, err := shared.Client.AwaitPod(ctx, pod, what, is)
	if err != nil {
		t.Fatal(err)
	}
	return current
}

// restartContainer ends the process of a pod's container main and waits until it runs again.
func restartContainer(ctx context.Context, t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	before := pod.Status.ContainerStatuses[0].ContainerID
	// The command may die with the container that it ends, and so report anything.
	_, _ = shared.Client.Exec(ctx, pod, "main", "kill", "1")
	return await(ctx, t, pod, "to run in a new container", func(now *corev1.Pod) bool {
		return kube.Ready(now) && now.Status.ContainerStatuses[0].ContainerID != before
	})
}

// look looks at a running container and fails the test unless it has exactly the devices that the scheduler chose for it.
func look(ctx context.Context, t *testing.T, pod *corev1.Pod, container string) *observe.Sight {
	t.Helper()
	sight := see(ctx, t, pod, container)
	if err := sight.Agree(); err != nil {
		t.Error(err)
	}
	return sight
}

// see looks at a running container.
func see(ctx context.Context, t *testing.T, pod *corev1.Pod, container string) *observe.Sight {
	t.Helper()
	for {
		sight, err := observer.Look(ctx, pod, container)
		if err == nil {
			return sight
		}
		if !strings.Contains(err.Error(), "code = Unavailable") {
			t.Fatal(err)
		}
		// The kubelet has lost kubecri, which has been killed, and takes a moment to find it again.
		pause(ctx, t, "the kubelet to reach the container runtime")
	}
}

// expectDevices looks at a running container and fails the test unless it has that many devices, which it returns.
func expectDevices(ctx context.Context, t *testing.T, pod *corev1.Pod, container string, count int) []string {
	t.Helper()
	sight := look(ctx, t, pod, container)
	if len(sight.Sees) != count {
		t.Errorf("%s has the devices %q, want %d", sight, sight.Sees, count)
	}
	return sight.Sees
}
