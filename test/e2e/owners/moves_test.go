// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package owners

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
	"github.com/kubedevice/kubedevice/test/vendors"
)

// gpus is what both plugins serve.
const gpus corev1.ResourceName = "nvidia.com/gpu"

// timeout is for all moves: kubecri waits a minute for a plugin that has left the kubelet.
const timeout = 8 * time.Minute

// A pod holds a GPU of NVIDIA's plugin at the kubelet when nvidiagpu comes to the node, and when
// NVIDIA's plugin leaves. Others arrive meanwhile, over restarts of the kubelet. No pod fails, no
// GPU is given to two pods, and the node says why some wait.
func TestGPUsMoveFromAPluginAtTheKubeletToAPluginFileWhilePodsRunAndArrive(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	namespace := clustertest.Namespace(t, shared.Client)
	create := func(name string) *corev1.Pod {
		return clustertest.CreatePod(ctx, t, shared.Client,
			clustertest.IdlePod(namespace, name, map[corev1.ResourceName]int64{gpus: 1}))
	}
	start(t, nvidia.Start)
	awaitOffer(ctx, t, vendors.GPUs, false)
	old := awaitReady(ctx, t, create("old"))

	// Both claim the GPUs: the kubelet's plugin serves.
	start(t, func() error { return os.Symlink(built, file) })
	start(t, func() error { return node.Kubecri.Restart(ctx) })
	awaitReadiness(ctx, t, "resource nvidia.com/gpu is registered with the kubelet, too")
	clustertest.AwaitMetric(ctx, t, node, `kubecri_resource_conflicts{resource="nvidia.com/gpu"} 1`)
	awaitEvent(ctx, t, "registered with the kubelet, too")
	both := awaitReady(ctx, t, create("both"))
	if _, annotated := both.Annotations[deviceinfo.Annotation]; annotated {
		t.Error("a pod got a GPU of the plugin file while the kubelet serves them")
	}
	expectOnce(ctx, t, old, both)

	// NVIDIA's plugin leaves while both pods hold a GPU of it.
	start(t, func() error { return nvidia.Terminate(ctx) })
	awaitOffer(ctx, t, 0, false)
	var arriving []*corev1.Pod
	for i := range vendors.GPUs {
		arriving = append(arriving, create(fmt.Sprintf("arriving-%d", i)))
	}
	start(t, func() error { return node.Kubelet.Restart(ctx) })
	clustertest.DeletePod(ctx, t, shared.Client, both)
	awaitReadiness(ctx, t, "pod "+namespace+"/old holds a device of nvidia.com/gpu")
	for _, pod := range arriving {
		clustertest.AwaitPod(ctx, t, shared.Client, pod, "to find no node", kube.Unschedulable)
	}
	clustertest.AwaitPod(ctx, t, shared.Client, old, "to be ready still", kube.Ready)
	clustertest.DeletePod(ctx, t, shared.Client, old)

	// The plugin file serves, also when kubelet and kubecri restart.
	awaitOffer(ctx, t, vendors.GPUs, true)
	for i, pod := range arriving {
		arriving[i] = awaitReady(ctx, t, pod)
	}
	expectOnce(ctx, t, arriving...)
	start(t, func() error { return node.Kubecri.Restart(ctx) })
	awaitReadiness(ctx, t, "[+]plugins ok")
	start(t, func() error { return node.Kubelet.Restart(ctx) })
	// The kubelet has admitted its pods, and knows which are gone, when it runs another.
	clustertest.RunPod(ctx, t, shared.Client, clustertest.IdlePod(namespace, "next", nil))
	awaitOffer(ctx, t, vendors.GPUs, true)
	clustertest.DeletePod(ctx, t, shared.Client, arriving[3])
	arriving[3] = awaitReady(ctx, t, create("after-restarts"))
	expectOnce(ctx, t, arriving...)
}

// start does a step of a move.
func start(t *testing.T, step func() error) {
	t.Helper()
	if err := step(); err != nil {
		t.Fatal(err)
	}
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
func awaitOffer(ctx context.Context, t *testing.T, count int64, annotated bool) {
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

// awaitReadiness waits until the readiness of the node's kubecri says something.
func awaitReadiness(ctx context.Context, t *testing.T, what string) {
	t.Helper()
	for {
		if answer, err := node.Get(ctx, "/readyz?verbose"); err == nil && strings.Contains(answer, what) {
			return
		}
		clustertest.Pause(ctx, t, "readiness to say "+what)
	}
}

// awaitEvent waits until the node has an event of the conflict.
func awaitEvent(ctx context.Context, t *testing.T, message string) {
	t.Helper()
	for {
		events, err := shared.Client.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{
			FieldSelector: "reason=ResourceConflict,involvedObject.name=" + node.Name,
		})
		if err == nil && slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
			return strings.Contains(e.Message, message)
		}) {
			return
		}
		clustertest.Pause(ctx, t, "an event ResourceConflict")
	}
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
