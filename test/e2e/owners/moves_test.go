// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package owners

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
	"github.com/kubedevice/kubedevice/test/vendors"
)

// gpus is what both plugins serve.
const gpus corev1.ResourceName = "nvidia.com/gpu"

// timeout is for all moves: kubecri waits a minute for a plugin that has left the kubelet.
const timeout = 12 * time.Minute

// A pod holds a GPU of NVIDIA's plugin at the kubelet when nvidiagpu comes to the node, and when
// NVIDIA's plugin leaves. Others arrive meanwhile, over restarts of the kubelet. Then NVIDIA's
// plugin comes back while pods hold GPUs of nvidiagpu. No pod fails, no GPU is given to two pods,
// and the node says why some wait.
func TestGPUsMoveFromAPluginAtTheKubeletToAPluginFileAndBackWhilePodsRunAndArrive(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	node, namespace := direct, clustertest.Namespace(t, shared.Client)
	create := func(name string) *corev1.Pod { return createPod(ctx, t, node, namespace, name) }
	start(t, node.kubelets.Start)
	awaitOffer(ctx, t, node, vendors.GPUs, false)
	old := awaitReady(ctx, t, create("old"))

	// Both claim the GPUs: the kubelet's plugin serves.
	start(t, func() error { return os.Symlink(built, node.file) })
	start(t, func() error { return node.Kubecri.Restart(ctx) })
	awaitConflict(ctx, t, node)
	both := awaitReady(ctx, t, create("both"))
	if _, annotated := both.Annotations[deviceinfo.Annotation]; annotated {
		t.Error("a pod got a GPU of the plugin file while the kubelet serves them")
	}
	expectOnce(ctx, t, old, both)

	// NVIDIA's plugin leaves while both pods hold a GPU of it.
	start(t, func() error { return node.kubelets.Terminate(ctx) })
	awaitOffer(ctx, t, node, 0, false)
	var arriving []*corev1.Pod
	for i := range vendors.GPUs {
		arriving = append(arriving, create(fmt.Sprintf("arriving-%d", i)))
	}
	start(t, func() error { return node.Kubelet.Restart(ctx) })
	clustertest.DeletePod(ctx, t, shared.Client, both)
	awaitReadiness(ctx, t, node, "pod "+namespace+"/old holds a device of nvidia.com/gpu")
	for _, pod := range arriving {
		clustertest.AwaitPod(ctx, t, shared.Client, pod, "to find no node", kube.Unschedulable)
	}
	clustertest.AwaitPod(ctx, t, shared.Client, old, "to be ready still", kube.Ready)
	clustertest.DeletePod(ctx, t, shared.Client, old)

	// The plugin file serves, also when kubelet and kubecri restart.
	awaitOffer(ctx, t, node, vendors.GPUs, true)
	for i, pod := range arriving {
		arriving[i] = awaitReady(ctx, t, pod)
	}
	expectOnce(ctx, t, arriving...)
	start(t, func() error { return node.Kubecri.Restart(ctx) })
	awaitReadiness(ctx, t, node, "[+]plugins ok")
	restartKubelet(ctx, t, node, namespace, "next")
	awaitOffer(ctx, t, node, vendors.GPUs, true)
	clustertest.DeletePod(ctx, t, shared.Client, arriving[3])
	arriving[3] = awaitReady(ctx, t, create("after-restarts"))
	expectOnce(ctx, t, arriving...)

	// NVIDIA's plugin comes back. Both claim the GPUs, and the kubelet's plugin serves.
	start(t, node.kubelets.Start)
	awaitConflict(ctx, t, node)
	awaitOffer(ctx, t, node, vendors.GPUs, false)
	restartKubelet(ctx, t, node, namespace, "next-of-both")
	awaitOffer(ctx, t, node, vendors.GPUs, false)
	clustertest.DeletePod(ctx, t, shared.Client, arriving[3])
	late := create("late")
	awaitPodEvent(ctx, t, late, "holds a device of it by a plugin file of kubecri")

	// The file is removed while pods hold GPUs of it.
	start(t, func() error { return os.Remove(node.file) })
	start(t, func() error { return node.Kubecri.Restart(ctx) })
	for _, pod := range arriving[:3] {
		clustertest.AwaitPod(ctx, t, shared.Client, pod, "to be ready still", kube.Ready)
		clustertest.DeletePod(ctx, t, shared.Client, pod)
	}
	late = awaitReady(ctx, t, late)
	expectOnce(ctx, t, late, awaitReady(ctx, t, create("last")))
}

// NVIDIA's plugin moves from the kubelet to kubecri while a pod holds a GPU of it, and gives way to
// nvidiagpu. Then the file is removed, and NVIDIA's plugin comes back to the kubelet while kubecri
// starts again.
func TestGPUsMoveFromAPluginAtTheKubeletToTheSameAtKubecriToAPluginFileAndBack(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	node, namespace := stepwise, clustertest.Namespace(t, shared.Client)
	create := func(name string) *corev1.Pod { return createPod(ctx, t, node, namespace, name) }
	start(t, node.kubelets.Start)
	awaitOffer(ctx, t, node, vendors.GPUs, false)
	old := awaitReady(ctx, t, create("old"))

	// The plugin moves to kubecri.
	start(t, func() error { return node.kubelets.Terminate(ctx) })
	awaitOffer(ctx, t, node, 0, false)
	pods := []*corev1.Pod{old}
	for i := range vendors.GPUs - 1 {
		pods = append(pods, create(fmt.Sprintf("hosted-%d", i)))
	}
	start(t, node.hosted.Start)
	awaitOffer(ctx, t, node, vendors.GPUs, true)
	for i, pod := range pods {
		pods[i] = awaitReady(ctx, t, pod)
	}
	waiting := create("waiting") // when all others have theirs: they had to wait for another try
	clustertest.AwaitPod(ctx, t, shared.Client, waiting, "to find no node", kube.Unschedulable)
	expectOnce(ctx, t, pods...)

	// Both claim the GPUs, over restarts: the plugin at kubecri serves.
	start(t, func() error { return os.Symlink(built, node.file) })
	start(t, func() error { return node.Kubecri.Restart(ctx) })
	restartKubelet(ctx, t, node, namespace, "next")
	awaitReadiness(ctx, t, node, "by a device plugin that registered with kubecri")
	clustertest.AwaitMetric(ctx, t, node.Node, `kubecri_resource_conflicts{resource="nvidia.com/gpu"} 1`)
	awaitEvent(ctx, t, node, "by a device plugin that registered with kubecri")
	clustertest.DeletePod(ctx, t, shared.Client, pods[3])
	pods[3] = awaitReady(ctx, t, waiting)
	expectOnce(ctx, t, pods...)

	// NVIDIA's plugin leaves while pods hold GPUs of it.
	start(t, func() error { return node.hosted.Terminate(ctx) })
	for _, pod := range pods[1:] {
		clustertest.DeletePod(ctx, t, shared.Client, pod)
	}
	awaitReadiness(ctx, t, node, "pod "+namespace+"/old holds a device of nvidia.com/gpu")
	var arriving []*corev1.Pod
	for i := range vendors.GPUs - 1 {
		arriving = append(arriving, create(fmt.Sprintf("arriving-%d", i)))
	}
	for _, pod := range arriving {
		clustertest.AwaitPod(ctx, t, shared.Client, pod, "to find no node", kube.Unschedulable)
	}
	clustertest.AwaitPod(ctx, t, shared.Client, old, "to be ready still", kube.Ready)
	clustertest.DeletePod(ctx, t, shared.Client, old)
	for i, pod := range arriving {
		arriving[i] = awaitReady(ctx, t, pod)
	}
	expectOnce(ctx, t, arriving...)

	// The way back, with the file removed first.
	start(t, func() error { return os.Remove(node.file) })
	start(t, func() error { return node.Kubecri.Restart(ctx) })
	start(t, node.kubelets.Start)
	awaitOffer(ctx, t, node, vendors.GPUs, false)
	late := create("late")
	awaitPodEvent(ctx, t, late, "holds a device of it by a plugin file of kubecri")
	for _, pod := range arriving {
		clustertest.AwaitPod(ctx, t, shared.Client, pod, "to be ready still", kube.Ready)
		clustertest.DeletePod(ctx, t, shared.Client, pod)
	}
	late = awaitReady(ctx, t, late)
	expectOnce(ctx, t, late, awaitReady(ctx, t, create("last")))
}

// nvidiagpu gives way to NVIDIA's plugin at kubecri while pods hold GPUs of it, and comes back
// while pods hold GPUs of the plugin. The kubelet has no part in it.
func TestGPUsMoveFromAPluginFileToAPluginAtKubecriAndBack(t *testing.T) {
	clustertest.OnlyInFull(t, "another test goes from a file to kubecri, and one back to a file")
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	node, namespace := within, clustertest.Namespace(t, shared.Client)
	create := func(name string) *corev1.Pod { return createPod(ctx, t, node, namespace, name) }
	start(t, func() error { return os.Symlink(built, node.file) })
	start(t, func() error { return node.Kubecri.Restart(ctx) })
	awaitOffer(ctx, t, node, vendors.GPUs, true)
	old := awaitReady(ctx, t, create("old"))

	// Both claim the GPUs: the file serves.
	start(t, node.hosted.Start)
	awaitReadiness(ctx, t, node, "nvidia.com/gpu is claimed by device plugins")
	both := awaitReady(ctx, t, create("both"))
	expectOnce(ctx, t, old, both)

	// The file is removed while both pods hold a GPU of it.
	start(t, func() error { return os.Remove(node.file) })
	start(t, func() error { return node.Kubecri.Restart(ctx) })
	awaitReadiness(ctx, t, node, "holds a device of nvidia.com/gpu by a plugin file, which has it by another name")
	awaitPluginsDevices(ctx, t, node)
	var arriving []*corev1.Pod
	for i := range vendors.GPUs - 1 {
		arriving = append(arriving, create(fmt.Sprintf("arriving-%d", i)))
	}
	clustertest.DeletePod(ctx, t, shared.Client, both)
	awaitReadiness(ctx, t, node, "pod "+namespace+"/old holds a device of nvidia.com/gpu by a plugin file")
	for _, pod := range arriving {
		clustertest.AwaitPod(ctx, t, shared.Client, pod, "to find no node", kube.Unschedulable)
	}
	clustertest.AwaitPod(ctx, t, shared.Client, old, "to be ready still", kube.Ready)
	clustertest.DeletePod(ctx, t, shared.Client, old)
	for i, pod := range arriving {
		arriving[i] = awaitReady(ctx, t, pod)
	}
	expectOnce(ctx, t, arriving...)

	// The file comes back while pods hold GPUs of the plugin: the plugin serves.
	start(t, func() error { return os.Symlink(built, node.file) })
	start(t, func() error { return node.Kubecri.Restart(ctx) })
	awaitReadiness(ctx, t, node, "holds a device of nvidia.com/gpu by a device plugin that registered with kubecri")
	clustertest.AwaitMetric(ctx, t, node.Node, `kubecri_resource_conflicts{resource="nvidia.com/gpu"} 1`)
	awaitEvent(ctx, t, node, "by a device plugin that registered with kubecri")
	late := awaitReady(ctx, t, create("late"))
	expectOnce(ctx, t, append(arriving, late)...)

	// The plugin leaves, and its pods one after another.
	start(t, func() error { return node.hosted.Terminate(ctx) })
	last := create("last")
	for _, pod := range arriving {
		clustertest.DeletePod(ctx, t, shared.Client, pod)
	}
	awaitReadiness(ctx, t, node, "pod "+namespace+"/late holds a device of nvidia.com/gpu")
	clustertest.AwaitPod(ctx, t, shared.Client, last, "to find no node", kube.Unschedulable)
	clustertest.AwaitPod(ctx, t, shared.Client, late, "to be ready still", kube.Ready)
	clustertest.DeletePod(ctx, t, shared.Client, late)
	awaitOffer(ctx, t, node, vendors.GPUs, true)
	expectOnce(ctx, t, awaitReady(ctx, t, last), awaitReady(ctx, t, create("next")))
}

// nvidiagpu gives way to NVIDIA's plugin at kubecri, and that moves to the kubelet, while pods hold
// GPUs and others arrive. The kubelet does not know which GPUs the pods hold, and would give them
// to others.
func TestGPUsMoveFromAPluginFileToAPluginAtKubecriToTheSameAtTheKubelet(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	node, namespace := outward, clustertest.Namespace(t, shared.Client)
	create := func(name string) *corev1.Pod { return createPod(ctx, t, node, namespace, name) }
	start(t, func() error { return os.Symlink(built, node.file) })
	start(t, func() error { return node.Kubecri.Restart(ctx) })
	awaitOffer(ctx, t, node, vendors.GPUs, true)
	old := awaitReady(ctx, t, create("old"))

	// The plugin comes, and the file is removed. Pods wait until the last holder of it has ended.
	start(t, node.hosted.Start)
	awaitReadiness(ctx, t, node, "nvidia.com/gpu is claimed by device plugins")
	clustertest.AwaitMetric(ctx, t, node.Node, `kubecri_resource_conflicts{resource="nvidia.com/gpu"} 1`)
	awaitEvent(ctx, t, node, "nvidia.com/gpu is claimed by device plugins")
	both := awaitReady(ctx, t, create("both"))
	expectOnce(ctx, t, old, both)
	start(t, func() error { return os.Remove(node.file) })
	start(t, func() error { return node.Kubecri.Restart(ctx) })
	awaitReadiness(ctx, t, node, "holds a device of nvidia.com/gpu by a plugin file, which has it by another name")
	awaitPluginsDevices(ctx, t, node)
	var hosted []*corev1.Pod
	for i := range vendors.GPUs - 1 {
		hosted = append(hosted, create(fmt.Sprintf("hosted-%d", i)))
	}
	for _, pod := range hosted {
		clustertest.AwaitPod(ctx, t, shared.Client, pod, "to find no node", kube.Unschedulable)
	}
	for _, pod := range []*corev1.Pod{old, both} {
		clustertest.AwaitPod(ctx, t, shared.Client, pod, "to be ready still", kube.Ready)
		clustertest.DeletePod(ctx, t, shared.Client, pod)
	}
	for i, pod := range hosted {
		hosted[i] = awaitReady(ctx, t, pod)
	}
	expectOnce(ctx, t, hosted...)

	// The plugin moves to the kubelet, which gives a GPU to a pod that arrives. At first both claim
	// the GPUs: the kubelet's plugin serves.
	start(t, node.kubelets.Start)
	awaitConflict(ctx, t, node)
	awaitOffer(ctx, t, node, vendors.GPUs, false)
	start(t, func() error { return node.hosted.Terminate(ctx) })
	late := create("late")
	awaitPodEvent(ctx, t, late, "holds a device of it by a device plugin that registered with kubecri")
	restartKubelet(ctx, t, node, namespace, "next")
	for _, pod := range hosted {
		clustertest.AwaitPod(ctx, t, shared.Client, pod, "to be ready still", kube.Ready)
		clustertest.DeletePod(ctx, t, shared.Client, pod)
	}
	late = awaitReady(ctx, t, late)
	expectOnce(ctx, t, late, awaitReady(ctx, t, create("last")))
}
