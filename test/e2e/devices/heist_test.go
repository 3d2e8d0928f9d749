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

// heist is what a forger finds: a namespace to work in, and a pod with a device that the forger
// would like to have.
type heist struct {
	forger    *kube.Client
	namespace string
	// victim runs in another namespace and holds card on node.
	victim *corev1.Pod
	node   string
	card   sdk.ResourceName
	// own is a pod of the forger's with devices on the same node, waiting one without a node.
	own, waiting *corev1.Pod
	ownDevices   []string
}

func newHeist(ctx context.Context, t *testing.T) *heist {
	t.Helper()
	h := &heist{namespace: clustertest.Namespace(t, shared.Client), node: shared.Nodes[0].Name}
	h.forger = newForger(ctx, t, h.namespace)
	h.victim = clustertest.RunPod(ctx, t, shared.Client,
		clustertest.On(h.node, gpuPod(clustertest.Namespace(t, shared.Client), "victim", 1)))
	h.card = sdk.ResourceName(look(ctx, t, h.victim, "main").Paths[0])
	h.own = clustertest.RunPod(ctx, t, shared.Client, clustertest.On(h.node, gpuPod(h.namespace, "own", 1)))
	h.ownDevices = expectDevices(ctx, t, h.own, "main", 1)
	waiting := gpuPod(h.namespace, "waiting", 1)
	waiting.Spec.SchedulerName = nobody
	h.waiting = clustertest.CreatePod(ctx, t, shared.Client, waiting)
	return h
}

// loot is the annotation with which a pod would have the victim's device.
func (h *heist) loot(t *testing.T, pod string) string { return allocation(t, pod, h.node, h.card) }

// pod returns a pod of the forger's that asks for a device and carries an annotation.
func (h *heist) pod(name, annotation string) *corev1.Pod {
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
func (h *heist) patchPod(ctx context.Context, pod *corev1.Pod, patch []byte, subresources ...string) error {
	_, err := h.forger.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch,
		metav1.PatchOptions{}, subresources...)
	return err
}

func (h *heist) createPod(ctx context.Context, pod *corev1.Pod) error {
	_, err := h.forger.CreatePod(ctx, pod)
	return err
}

func patchNode(ctx context.Context, client *kube.Client, node string, patch []byte, subresources ...string) error {
	_, err := client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{},
		subresources...)
	return err
}

// expectNothingStolen fails the test unless all pods and the node are as they were, also in a new
// container of the forger's.
func (h *heist) expectNothingStolen(ctx context.Context, t *testing.T) {
	t.Helper()
	sees := see(ctx, t, clustertest.RestartContainer(ctx, t, shared.Client, h.own), "main").Sees
	if diff := cmp.Diff(h.ownDevices, sees); diff != "" {
		t.Errorf("devices of the forger's pod (-before +after):\n%s", diff)
	}
	victim := clustertest.AwaitPod(ctx, t, shared.Client, h.victim, "to be ready still", kube.Ready)
	if diff := cmp.Diff(h.victim.Annotations, victim.Annotations); diff != "" {
		t.Errorf("annotations of the victim (-before +after):\n%s", diff)
	}
	if got := look(ctx, t, victim, "main").Paths[0]; got != string(h.card) {
		t.Errorf("the victim holds %s, want %s still", got, h.card)
	}
	awaitGPUs(ctx, t, h.node, perNode)
}
