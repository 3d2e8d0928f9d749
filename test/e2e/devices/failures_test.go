// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
)

// replica runs a ReplicaSet of one pod with one GPU, and returns the pod. The annotations are the
// pod's.
func replica(ctx context.Context, t *testing.T, namespace, name string, annotations map[string]string) *corev1.Pod {
	t.Helper()
	pod := gpuPod(namespace, name, 1)
	pod.Annotations = annotations
	pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](1)
	return clustertest.RunReplica(ctx, t, shared.Client, pod)
}

// fails makes the only GPU of a pod unhealthy until repair is called, or the test ends.
func fails(ctx context.Context, t *testing.T, pod *corev1.Pod) (gpu string, repair func()) {
	t.Helper()
	gpu = expectDevices(ctx, t, pod, "main", 1)[0]
	node := pod.Spec.NodeName
	makeUnhealthy(t, node, gpu)
	return gpu, func() { setInventory(t, node, "") }
}

func TestAFailedDeviceThatIsIgnoredIsOnlyReported(t *testing.T) {
	ctx := begin(t)
	namespace := clustertest.Namespace(t, shared.Client)
	node := shared.Nodes[0].Name
	pod := clustertest.RunPod(ctx, t, shared.Client, clustertest.On(node, gpuPod(namespace, "holder", 1)))
	neighbour := clustertest.RunPod(ctx, t, shared.Client, clustertest.On(node, gpuPod(namespace, "neighbour", 1)))
	gpu, repair := fails(ctx, t, pod)

	now := clustertest.AwaitHealth(ctx, t, shared.Client, pod, "False Simulated")
	text := clustertest.AwaitEvent(ctx, t, shared.Client, pod, "DeviceUnhealthy")
	if !strings.Contains(text, gpu) ||
		!strings.Contains(text, "Simulated") || !strings.Contains(text, "left alone") {
		t.Errorf("the event says %q", text)
	}
	published, err := shared.Client.AwaitNode(ctx, node, "to say why "+gpu+" is unhealthy", func(n *corev1.Node) bool {
		list, err := deviceinfo.DecodeUnhealthy(n.Annotations[deviceinfo.UnhealthyAnnotation])
		return err == nil && len(list) == 1 && strings.HasSuffix(list[0].Device, "/gpu/"+gpu) &&
			list[0].Reason == "Simulated" && !list[0].Since.IsZero()
	})
	if err != nil {
		t.Fatal(err)
	}
	awaitGPUs(ctx, t, published.Name, perNode-1)
	if diff := cmp.Diff(pod.Status.ContainerStatuses, now.Status.ContainerStatuses); diff != "" {
		t.Errorf("the container noticed something (-before +after):\n%s", diff)
	}

	repair()
	clustertest.AwaitHealth(ctx, t, shared.Client, pod, "True DevicesHealthy")
	after := awaitGPUs(ctx, t, node, perNode)
	if text, there := after.Annotations[deviceinfo.UnhealthyAnnotation]; there {
		t.Errorf("the healthy node still says %s", text)
	}
	clustertest.ExpectUntouched(ctx, t, shared.Client, neighbour)
}

func TestAFailedDeviceEvictsThePodThatHoldsItAlone(t *testing.T) {
	ctx := begin(t)
	namespace := clustertest.Namespace(t, shared.Client)
	pod := replica(ctx, t, namespace, "mover", map[string]string{
		deviceinfo.OnDeviceFailureAnnotation: "Evict", deviceinfo.DeviceFailureGracePeriodAnnotation: "2s",
	})
	neighbour := clustertest.RunPod(ctx, t, shared.Client,
		clustertest.On(pod.Spec.NodeName, gpuPod(namespace, "neighbour", 1)))
	gpu, repair := fails(ctx, t, pod)

	moved := clustertest.AwaitReplica(ctx, t, shared.Client, namespace, "mover", pod.UID)
	if sees := expectDevices(ctx, t, moved, "main", 1); moved.Spec.NodeName == pod.Spec.NodeName &&
		slices.Contains(sees, gpu) {
		t.Errorf("the pod was allocated %s of %s again, which has failed", gpu, moved.Spec.NodeName)
	}
	text := clustertest.AwaitEvent(ctx, t, shared.Client, pod, "DeviceFailureEvicted")
	if !strings.Contains(text, gpu) {
		t.Errorf("the event says %q, and nothing of %s", text, gpu)
	}
	clustertest.ExpectUntouched(ctx, t, shared.Client, neighbour)
	repair()
	awaitGPUs(ctx, t, pod.Spec.NodeName, perNode)
}

func TestABudgetHoldsBackThePodOfAFailedDevice(t *testing.T) {
	ctx := begin(t)
	namespace := clustertest.Namespace(t, shared.Client)
	// The namespace's word, which its pods do not repeat.
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"Evict",%q:"0s"}}}`,
		deviceinfo.OnDeviceFailureAnnotation, deviceinfo.DeviceFailureGracePeriodAnnotation)
	if _, err := shared.Client.CoreV1().Namespaces().Patch(ctx, namespace, apitypes.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	clustertest.Protect(ctx, t, shared.Client, namespace, "held")
	pod := replica(ctx, t, namespace, "held", nil)
	clustertest.AwaitProtected(ctx, t, shared.Client, namespace, "held")
	fails(ctx, t, pod)

	text := clustertest.AwaitEvent(ctx, t, shared.Client, pod, "DeviceFailureBlocked")
	if !strings.Contains(text, "disruption budget") {
		t.Errorf("the event says %q", text)
	}
	now, err := shared.Client.CoreV1().Pods(namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if now.UID != pod.UID || now.DeletionTimestamp != nil || !kube.Ready(now) {
		t.Errorf("in spite of its budget the pod is %s", shared.Client.Describe(ctx, now))
	}
	budgets := shared.Client.PolicyV1().PodDisruptionBudgets(namespace)
	if err := budgets.Delete(ctx, "held", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	clustertest.AwaitReplica(ctx, t, shared.Client, namespace, "held", pod.UID)
}
