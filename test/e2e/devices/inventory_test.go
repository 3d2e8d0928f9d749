// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
	"github.com/kubedevice/kubedevice/test/observe"
)

// perNode is the number of GPUs of a node.
const perNode = 8

func TestAnUnhealthyDeviceIsAllocatedToNoPodUntilItIsHealthy(t *testing.T) {
	ctx := begin(t)
	node := shared.Nodes[0].Name
	namespace := clustertest.Namespace(t, shared.Client)
	const unhealthy = "gpu-3"
	makeUnhealthy(t, node, unhealthy)
	awaitGPUs(ctx, t, node, perNode-1)
	// The scheduler may hear of it later than this test does.
	all := clustertest.CreatePod(ctx, t, shared.Client, clustertest.On(node, gpuPod(namespace, "all", perNode)))
	clustertest.AwaitPod(ctx, t, shared.Client, all, "to be found unschedulable", kube.Unschedulable)
	if err := shared.Client.DeletePod(ctx, all); err != nil {
		t.Fatal(err)
	}

	rest := clustertest.RunPod(ctx, t, shared.Client, clustertest.On(node, gpuPod(namespace, "rest", perNode-1)))
	if sees := expectDevices(ctx, t, rest, "main", perNode-1); slices.Contains(sees, unhealthy) {
		t.Errorf("a pod was allocated %s, which is unhealthy: %q", unhealthy, sees)
	}
	last := clustertest.CreatePod(ctx, t, shared.Client, clustertest.On(node, gpuPod(namespace, "last", 1)))
	part := clustertest.On(node, gpuPod(namespace, "part", 0))
	kube.SetRequests(part, `"gpu/a/memory":"20Gi"`)
	part = clustertest.CreatePod(ctx, t, shared.Client, part)
	for _, waiting := range []*corev1.Pod{last, part} {
		clustertest.AwaitPod(ctx, t, shared.Client, waiting, "to wait because a GPU is unhealthy", saysUnhealthy)
	}
	clustertest.DeletePod(ctx, t, shared.Client, part)

	setInventory(t, node, "")
	awaitGPUs(ctx, t, node, perNode)
	last = clustertest.AwaitPod(ctx, t, shared.Client, last, "to be ready on the device that is healthy again",
		kube.Ready)
	if diff := cmp.Diff([]string{unhealthy}, inspect(ctx, t, last, "main").Visible); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
}

// saysUnhealthy reports whether the scheduler says that an unhealthy GPU is why a pod waits.
func saysUnhealthy(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && strings.Contains(c.Message, "have 1 unhealthy GPU (Simulated)")
	})
}

func TestADeviceThatBecomesUnhealthyStaysWithItsPod(t *testing.T) {
	ctx := begin(t)
	node := shared.Nodes[0].Name
	pod := clustertest.RunPod(ctx, t, shared.Client,
		clustertest.On(node, gpuPod(clustertest.Namespace(t, shared.Client), "holder", 1)))
	before := inspect(ctx, t, pod, "main")
	makeUnhealthy(t, node, before.Visible[0])
	awaitGPUs(ctx, t, node, perNode-1)
	clustertest.AwaitHealth(ctx, t, shared.Client, pod, "False Simulated")

	after := clustertest.AwaitPod(ctx, t, shared.Client, pod, "to be ready still", kube.Ready)

	if diff := cmp.Diff(pod.Status.ContainerStatuses, after.Status.ContainerStatuses); diff != "" {
		t.Errorf("the container noticed something (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(before, inspect(ctx, t, after, "main"),
		cmp.AllowUnexported(observe.Observation{})); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

func TestForeignChangesOfANodesDevicesAreReverted(t *testing.T) {
	node := shared.Nodes[1].Name
	count := map[corev1.ResourceName]any{observe.Resource: "0"}
	none := map[corev1.ResourceName]any{observe.Resource: nil}
	for name, change := range map[string]map[string]any{
		"no GPUs, as the kubelet says when it registers": {
			"status": map[string]any{"capacity": count, "allocatable": count},
		},
		"GPUs taken off the status": {"status": map[string]any{"capacity": none, "allocatable": none}},
		"the annotation removed": {
			"metadata": map[string]any{"annotations": map[string]any{deviceinfo.Annotation: nil}},
		},
		"another inventory in the annotation": {
			"metadata": map[string]any{"annotations": map[string]any{deviceinfo.Annotation: "{}"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := begin(t)
			before := awaitGPUs(ctx, t, node, perNode)
			patch, err := json.Marshal(change)
			if err != nil {
				t.Fatal(err)
			}
			changed, err := shared.Client.CoreV1().Nodes().Patch(ctx, node, apitypes.MergePatchType, patch,
				metav1.PatchOptions{}, "status")
			if err != nil {
				t.Fatal(err)
			}
			if same(before, changed) {
				t.Fatal("the change had no effect")
			}

			if _, err := shared.Client.AwaitNode(ctx, node, "to be as it was",
				func(now *corev1.Node) bool { return same(before, now) }); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// same says whether two states of a node have the same devices.
func same(a, b *corev1.Node) bool {
	count := func(list corev1.ResourceList) string {
		quantity, there := list[observe.Resource]
		return fmt.Sprint(there, quantity.Value())
	}
	return a.Annotations[deviceinfo.Annotation] == b.Annotations[deviceinfo.Annotation] &&
		count(a.Status.Capacity) == count(b.Status.Capacity) &&
		count(a.Status.Allocatable) == count(b.Status.Allocatable)
}

func setInventory(t *testing.T, node, more string) {
	t.Helper()
	if err := files.setInventory(node, more); err != nil {
		t.Fatal(err)
	}
}

// restoreInventory makes all GPUs of a node healthy, and waits until the node publishes them: the
// next test begins with them. One that has failed often recovers for two minutes.
func restoreInventory(t *testing.T, node string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*timeout)
	defer cancel()
	setInventory(t, node, "")
	awaitGPUs(ctx, t, node, perNode)
}

// makeUnhealthy makes a GPU of a node the only unhealthy one, until the test ends.
func makeUnhealthy(t *testing.T, node, gpu string) {
	t.Helper()
	t.Cleanup(func() { restoreInventory(t, node) })
	setInventory(t, node, "unhealthy: ["+gpu+"]\n")
}

// awaitGPUs waits until a node names and counts that many GPUs, and returns the node as it is then.
func awaitGPUs(ctx context.Context, t *testing.T, node string, count int64) *corev1.Node {
	t.Helper()
	what := fmt.Sprintf("to publish %d GPUs", count)
	current, err := shared.Client.AwaitNode(ctx, node, what, func(n *corev1.Node) bool {
		capacity, allocatable := n.Status.Capacity[observe.Resource], n.Status.Allocatable[observe.Resource]
		return named(n) == count && capacity.Value() == count && allocatable.Value() == count
	})
	if err != nil {
		t.Fatal(err)
	}
	return current
}

// named returns how many GPUs the annotation of a node says pods may be allocated.
func named(node *corev1.Node) int64 {
	info, err := deviceinfo.DecodeNode(node.Annotations[deviceinfo.Annotation])
	if err != nil { // there is none, or one that another user has written
		return 0
	}
	return info.Allocatable[types.ResourceName(observe.Resource)]
}
