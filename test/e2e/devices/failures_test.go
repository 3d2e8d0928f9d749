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
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
)

// condition returns the status and reason of a pod's condition about its devices.
func condition(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == deviceinfo.DevicesHealthyCondition {
			return string(c.Status) + " " + c.Reason
		}
	}
	return ""
}

// awaitCondition waits until a pod's condition about its devices is that.
func awaitCondition(ctx context.Context, t *testing.T, pod *corev1.Pod, want string) *corev1.Pod {
	t.Helper()
	return clustertest.AwaitPod(ctx, t, shared.Client, pod, "to have the condition DevicesHealthy="+want,
		func(now *corev1.Pod) bool { return condition(now) == want })
}

// awaitReason waits until a pod has an event for a reason, and returns what it says.
func awaitReason(ctx context.Context, t *testing.T, pod *corev1.Pod, reason string) string {
	t.Helper()
	for {
		events, err := shared.Client.PodEvents(ctx, pod)
		if err != nil {
			t.Fatalf("wait for pod %s to have an event %s: %v", pod.Name, reason, err)
		}
		for _, event := range events {
			if event.Reason == reason {
				return event.Message
			}
		}
		clustertest.Pause(ctx, t, fmt.Sprintf("an event %s of pod %s", reason, pod.Name))
	}
}

// replicas runs a ReplicaSet of one pod with one GPU, and returns the pod. The annotations are the
// pod's.
func replicas(
	ctx context.Context, t *testing.T, namespace, name string, annotations map[string]string,
) (pod *corev1.Pod) {
	t.Helper()
	template := gpuPod(namespace, name, 1)
	template.Spec.TerminationGracePeriodSeconds = ptr.To[int64](1)
	labels := map[string]string{"app": name}
	set := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations}, Spec: template.Spec,
			},
		},
	}
	if _, err := shared.Client.AppsV1().ReplicaSets(namespace).Create(ctx, set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // before its pods, which it would make again
		err := shared.Client.AppsV1().ReplicaSets(namespace).Delete(context.WithoutCancel(ctx), name,
			metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	return awaitReplica(ctx, t, namespace, name, "")
}

// awaitReplica waits until the ReplicaSet has a pod that is ready and is not the one with that UID.
func awaitReplica(ctx context.Context, t *testing.T, namespace, name string, not apitypes.UID) *corev1.Pod {
	t.Helper()
	for {
		list, err := shared.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
		if err != nil {
			t.Fatalf("wait for a pod of ReplicaSet %s: %v", name, err)
		}
		for i := range list.Items {
			if pod := &list.Items[i]; pod.UID != not && pod.DeletionTimestamp == nil && kube.Ready(pod) {
				return pod
			}
		}
		clustertest.Pause(ctx, t, "a pod of ReplicaSet "+name)
	}
}

// fails makes the only GPU of a pod unhealthy until mend is called, or the test ends.
func fails(ctx context.Context, t *testing.T, pod *corev1.Pod) (gpu string, mend func()) {
	t.Helper()
	gpu = expectDevices(ctx, t, pod, "main", 1)[0]
	node := pod.Spec.NodeName
	setInventory(t, node, "unhealthy: ["+gpu+"]\n")
	mend = func() { setInventory(t, node, "") }
	t.Cleanup(mend)
	return gpu, mend
}

func TestAFailedDeviceThatIsIgnoredIsOnlyTold(t *testing.T) {
	ctx := begin(t)
	namespace := clustertest.Namespace(t, shared.Client)
	node := shared.Nodes[0].Name
	pod := clustertest.RunPod(ctx, t, shared.Client, clustertest.On(node, gpuPod(namespace, "holder", 1)))
	neighbour := clustertest.RunPod(ctx, t, shared.Client, clustertest.On(node, gpuPod(namespace, "neighbour", 1)))
	gpu, mend := fails(ctx, t, pod)

	now := awaitCondition(ctx, t, pod, "False Simulated")
	if text := awaitReason(ctx, t, pod, "DeviceAiling"); !strings.Contains(text, gpu) ||
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

	mend()
	awaitCondition(ctx, t, pod, "True DevicesHealthy")
	after := awaitGPUs(ctx, t, node, perNode)
	if text, there := after.Annotations[deviceinfo.UnhealthyAnnotation]; there {
		t.Errorf("the healthy node still says %s", text)
	}
	same := clustertest.AwaitPod(ctx, t, shared.Client, neighbour, "to be ready still", kube.Ready)
	if diff := cmp.Diff(neighbour.Status.ContainerStatuses, same.Status.ContainerStatuses); diff != "" {
		t.Errorf("the neighbour noticed something (-before +after):\n%s", diff)
	}
}

func TestAFailedDeviceEvictsThePodThatHoldsItAlone(t *testing.T) {
	ctx := begin(t)
	namespace := clustertest.Namespace(t, shared.Client)
	pod := replicas(ctx, t, namespace, "mover", map[string]string{
		deviceinfo.OnDeviceFailureAnnotation: "Evict", deviceinfo.DeviceFailureGracePeriodAnnotation: "2s",
	})
	neighbour := clustertest.RunPod(ctx, t, shared.Client,
		clustertest.On(pod.Spec.NodeName, gpuPod(namespace, "neighbour", 1)))
	gpu, mend := fails(ctx, t, pod)

	moved := awaitReplica(ctx, t, namespace, "mover", pod.UID)
	if sees := expectDevices(ctx, t, moved, "main", 1); moved.Spec.NodeName == pod.Spec.NodeName &&
		slices.Contains(sees, gpu) {
		t.Errorf("the pod was given %s of %s again, which has failed", gpu, moved.Spec.NodeName)
	}
	if text := awaitReason(ctx, t, pod, "DeviceFailureEvicted"); !strings.Contains(text, gpu) {
		t.Errorf("the event says %q, and nothing of %s", text, gpu)
	}
	same := clustertest.AwaitPod(ctx, t, shared.Client, neighbour, "to be ready still", kube.Ready)
	if diff := cmp.Diff(neighbour.Status.ContainerStatuses, same.Status.ContainerStatuses); diff != "" {
		t.Errorf("the neighbour noticed something (-before +after):\n%s", diff)
	}
	mend()
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
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "all"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.FromInt32(1)),
			Selector:     &metav1.LabelSelector{MatchLabels: map[string]string{"app": "held"}},
		},
	}
	budgets := shared.Client.PolicyV1().PodDisruptionBudgets(namespace)
	if _, err := budgets.Create(ctx, budget, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := replicas(ctx, t, namespace, "held", nil)
	awaitProtected(ctx, t, namespace, "all")
	fails(ctx, t, pod)

	if text := awaitReason(ctx, t, pod, "DeviceFailureBlocked"); !strings.Contains(text, "disruption budget") {
		t.Errorf("the event says %q", text)
	}
	now, err := shared.Client.CoreV1().Pods(namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if now.UID != pod.UID || now.DeletionTimestamp != nil || !kube.Ready(now) {
		t.Errorf("in spite of its budget the pod is %s", shared.Client.Describe(ctx, now))
	}
	if err := budgets.Delete(ctx, "all", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitReplica(ctx, t, namespace, "held", pod.UID)
}
