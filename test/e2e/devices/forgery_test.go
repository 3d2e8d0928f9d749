// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
)

// forgery is what a forger finds: a namespace to work in, and a pod with a device that the forger
// would like to have.
type forgery struct {
	forger    *kube.Client
	namespace string
	// holder runs in another namespace and holds card on node.
	holder *corev1.Pod
	node   string
	card   sdk.ResourceName
	// own is a pod of the forger's with devices on the same node, waiting one without a node.
	own, waiting *corev1.Pod
	ownDevices   []string
}

func newForgery(ctx context.Context, t *testing.T) *forgery {
	t.Helper()
	h := &forgery{namespace: clustertest.Namespace(t, shared.Client), node: shared.Nodes[0].Name}
	h.forger = newForger(ctx, t, h.namespace)
	h.holder = clustertest.RunPod(ctx, t, shared.Client,
		clustertest.On(h.node, gpuPod(clustertest.Namespace(t, shared.Client), "victim", 1)))
	h.card = sdk.ResourceName(inspect(ctx, t, h.holder, "main").Paths[0])
	h.own = clustertest.RunPod(ctx, t, shared.Client, clustertest.On(h.node, gpuPod(h.namespace, "own", 1)))
	h.ownDevices = expectDevices(ctx, t, h.own, "main", 1)
	waiting := gpuPod(h.namespace, "waiting", 1)
	waiting.Spec.SchedulerName = absentScheduler
	h.waiting = clustertest.CreatePod(ctx, t, shared.Client, waiting)
	return h
}

// allocationOf is the annotation with which a pod would have the holder's device.
func (h *forgery) allocationOf(t *testing.T, pod string) string {
	return allocation(t, pod, h.node, h.card)
}

// pod returns a pod of the forger's that requests a device and has an annotation.
func (h *forgery) pod(name, annotation string) *corev1.Pod {
	pod := clustertest.On(h.node, gpuPod(h.namespace, name, 1))
	pod.Annotations = map[string]string{deviceinfo.Annotation: annotation}
	return pod
}

// annotate returns a merge patch that sets the annotation, or removes it if value is nil.
func annotate(t *testing.T, value any) []byte {
	t.Helper()
	patch, err := json.Marshal(
		map[string]any{"metadata": map[string]any{"annotations": map[string]any{deviceinfo.Annotation: value}}})
	if err != nil {
		t.Fatal(err)
	}
	return patch
}

// patchPod patches one of the forger's pods.
func (h *forgery) patchPod(ctx context.Context, pod *corev1.Pod, patch []byte, subresources ...string) error {
	_, err := h.forger.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch,
		metav1.PatchOptions{}, subresources...)
	return err
}

func (h *forgery) createPod(ctx context.Context, pod *corev1.Pod) error {
	_, err := h.forger.CreatePod(ctx, pod)
	return err
}

func patchNode(ctx context.Context, client *kube.Client, node string, patch []byte, subresources ...string) error {
	_, err := client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{},
		subresources...)
	return err
}

// expectUnchanged fails the test unless all pods and the node are as they were, also in a new
// container of the forger's.
func (h *forgery) expectUnchanged(ctx context.Context, t *testing.T) {
	t.Helper()
	sees := inspectRaw(ctx, t, clustertest.RestartContainer(ctx, t, shared.Client, h.own), "main").Visible
	if diff := cmp.Diff(h.ownDevices, sees); diff != "" {
		t.Errorf("devices of the forger's pod (-before +after):\n%s", diff)
	}
	holder := clustertest.AwaitPod(ctx, t, shared.Client, h.holder, "to be ready still", kube.Ready)
	if diff := cmp.Diff(h.holder.Annotations, holder.Annotations); diff != "" {
		t.Errorf("annotations of the holder (-before +after):\n%s", diff)
	}
	if got := inspect(ctx, t, holder, "main").Paths[0]; got != string(h.card) {
		t.Errorf("the holder holds %s, want %s still", got, h.card)
	}
	awaitGPUs(ctx, t, h.node, perNode)
}
