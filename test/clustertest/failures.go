// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package clustertest

import (
	"context"
	"fmt"
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
	"github.com/kubedevice/kubedevice/test/kube"
)

// OnFailure returns the annotations of a pod that wants that as soon as one of its devices fails.
func OnFailure(policy string) map[string]string {
	return map[string]string{
		deviceinfo.OnDeviceFailureAnnotation: policy, deviceinfo.DeviceFailureGracePeriodAnnotation: "0s",
	}
}

// AwaitEvent waits until a pod has an event for a reason, and returns what it says, or ends the
// test.
func AwaitEvent(
	ctx context.Context, t testing.TB, client *kube.Client, pod *corev1.Pod, reason string,
) (text string) {
	t.Helper()
	AwaitSuccess(ctx, t, fmt.Sprintf("pod %s to have an event %s", pod.Name, reason), func() error {
		events, err := client.PodEvents(ctx, pod)
		if err != nil {
			return err
		}
		for _, event := range events {
			if event.Reason == reason {
				text = event.Message
				return nil
			}
		}
		return fmt.Errorf("it is %s", client.Describe(ctx, pod))
	})
	return text
}

// AwaitHealth waits until a pod's condition about its devices has one of these, status and reason,
// or ends the test.
func AwaitHealth(
	ctx context.Context, t testing.TB, client *kube.Client, pod *corev1.Pod, want ...string,
) *corev1.Pod {
	t.Helper()
	return AwaitPod(ctx, t, client, pod, fmt.Sprintf("to have the condition DevicesHealthy=%q", want),
		func(now *corev1.Pod) bool {
			for _, c := range now.Status.Conditions {
				for _, one := range want {
					if c.Type == deviceinfo.DevicesHealthyCondition && string(c.Status)+" "+c.Reason == one {
						return true
					}
				}
			}
			return false
		})
}

// AwaitReplaced waits until the only container of the pod was started again and is ready, or ends
// the test. It fails the test unless the pod is the same one on the same node, with the same
// address.
func AwaitReplaced(ctx context.Context, t testing.TB, client *kube.Client, before *corev1.Pod) *corev1.Pod {
	t.Helper()
	now := AwaitPod(ctx, t, client, before, "to be ready with another device",
		func(now *corev1.Pod) bool {
			return kube.Ready(now) && len(now.Status.ContainerStatuses) == 1 &&
				now.Status.ContainerStatuses[0].ContainerID != before.Status.ContainerStatuses[0].ContainerID
		})
	if now.UID != before.UID || now.Status.PodIP != before.Status.PodIP || now.Spec.NodeName != before.Spec.NodeName {
		t.Errorf("the pod was %s (%s) on %s, and is %s (%s) on %s", before.UID, before.Status.PodIP,
			before.Spec.NodeName, now.UID, now.Status.PodIP, now.Spec.NodeName)
	}
	return now
}

// ExpectUntouched fails the test unless nothing happened to the containers of a pod.
func ExpectUntouched(ctx context.Context, t testing.TB, client *kube.Client, before *corev1.Pod) {
	t.Helper()
	now := AwaitPod(ctx, t, client, before, "to be ready still", kube.Ready)
	if diff := cmp.Diff(before.Status.ContainerStatuses, now.Status.ContainerStatuses); diff != "" {
		t.Errorf("pod %s noticed something (-before +after):\n%s", before.Name, diff)
	}
}

// RunReplica runs a ReplicaSet of one pod like that, with its name, until the test ends, and
// returns its pod when it is ready.
func RunReplica(ctx context.Context, t testing.TB, client *kube.Client, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	labels := map[string]string{"app": pod.Name}
	set := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: pod.Annotations}, Spec: pod.Spec,
			},
		},
	}
	sets := client.AppsV1().ReplicaSets(pod.Namespace)
	if _, err := sets.Create(ctx, set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // before its pods, which it would make again
		err := sets.Delete(context.WithoutCancel(ctx), pod.Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	return AwaitReplica(ctx, t, client, pod.Namespace, pod.Name, "")
}

// AwaitReplica waits until the ReplicaSet has a pod that is ready and is not the one with that UID,
// or ends the test.
func AwaitReplica(
	ctx context.Context, t testing.TB, client *kube.Client, namespace, set string, not apitypes.UID,
) (ready *corev1.Pod) {
	t.Helper()
	Await(ctx, t, "a pod of ReplicaSet "+set, func() bool {
		list, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + set})
		if err != nil {
			t.Fatalf("wait for a pod of ReplicaSet %s: %v", set, err)
		}
		for i := range list.Items {
			if pod := &list.Items[i]; pod.UID != not && pod.DeletionTimestamp == nil && kube.Ready(pod) {
				ready = pod
				return true
			}
		}
		return false
	})
	return ready
}

// Protect makes a budget that forbids to evict the pod of a ReplicaSet. AwaitProtected waits
// until it counts the pod.
func Protect(ctx context.Context, t testing.TB, client *kube.Client, namespace, set string) {
	t.Helper()
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: set},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.FromInt32(1)),
			Selector:     &metav1.LabelSelector{MatchLabels: map[string]string{"app": set}},
		},
	}
	budgets := client.PolicyV1().PodDisruptionBudgets(namespace)
	if _, err := budgets.Create(ctx, budget, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// AwaitProtected waits until the budget for a ReplicaSet counts its pod, or ends the test.
func AwaitProtected(ctx context.Context, t testing.TB, client *kube.Client, namespace, set string) {
	t.Helper()
	Await(ctx, t, "the budget to count the pod", func() bool {
		now, err := client.PolicyV1().PodDisruptionBudgets(namespace).Get(ctx, set, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return now.Status.CurrentHealthy == 1 && now.Status.ObservedGeneration == now.Generation
	})
}
