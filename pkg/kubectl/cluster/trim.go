// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// trimNode returns a node with its name, its labels, the annotations about devices, how many of
// each extended resource it has, and whether it is cordoned and ready.
func trimNode(node *corev1.Node) *corev1.Node {
	trimmed := &corev1.Node{ObjectMeta: trimMeta(&node.ObjectMeta)}
	trimmed.Labels = node.Labels
	trimmed.Spec.Unschedulable = node.Spec.Unschedulable
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady { // without its times: the kubelet writes them again and again
			trimmed.Status.Conditions = []corev1.NodeCondition{{Type: condition.Type, Status: condition.Status}}
		}
	}
	for name, quantity := range node.Status.Capacity {
		if !resource.IsExtendedResource(types.ResourceName(name)) {
			continue
		}
		if trimmed.Status.Capacity == nil {
			trimmed.Status.Capacity = corev1.ResourceList{}
		}
		trimmed.Status.Capacity[name] = quantity
	}
	return trimmed
}

// trimPod returns a pod with what is about its devices: its annotations about them, which container
// requests which extended resources, whether it was bound, which container has started, and why it
// failed.
func trimPod(pod *corev1.Pod) *corev1.Pod {
	trimmed := &corev1.Pod{ObjectMeta: trimMeta(&pod.ObjectMeta)}
	trimmed.Labels = pod.Labels
	trimmed.Spec.NodeName = pod.Spec.NodeName
	trimmed.Spec.InitContainers = trimContainers(pod.Spec.InitContainers)
	trimmed.Spec.Containers = trimContainers(pod.Spec.Containers)
	trimmed.Status.Phase, trimmed.Status.Reason = pod.Status.Phase, pod.Status.Reason
	trimmed.Status.Message = pod.Status.Message
	trimmed.Status.InitContainerStatuses = trimStatuses(pod.Status.InitContainerStatuses)
	trimmed.Status.ContainerStatuses = trimStatuses(pod.Status.ContainerStatuses)
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled {
			trimmed.Status.Conditions = []corev1.PodCondition{condition}
		}
	}
	return trimmed
}

func trimMeta(meta *metav1.ObjectMeta) metav1.ObjectMeta {
	trimmed := metav1.ObjectMeta{
		Namespace: meta.Namespace, Name: meta.Name, UID: meta.UID, ResourceVersion: meta.ResourceVersion,
		CreationTimestamp: meta.CreationTimestamp, DeletionTimestamp: meta.DeletionTimestamp,
	}
	for _, key := range []string{
		deviceinfo.Annotation, deviceinfo.HoldersAnnotation, deviceinfo.UnhealthyAnnotation,
		deviceinfo.AttributesAnnotation, deviceinfo.UsageAnnotation, deviceinfo.DeviceTaintsAnnotation,
		deviceinfo.ShareEnforcementAnnotation, deviceinfo.OnShareExceededAnnotation,
	} {
		if value, ok := meta.Annotations[key]; ok {
			if trimmed.Annotations == nil {
				trimmed.Annotations = map[string]string{}
			}
			trimmed.Annotations[key] = value
		}
	}
	return trimmed
}

func trimContainers(containers []corev1.Container) []corev1.Container {
	trimmed := make([]corev1.Container, len(containers))
	for i := range containers {
		c := &containers[i]
		trimmed[i] = corev1.Container{Name: c.Name, Resources: c.Resources, RestartPolicy: c.RestartPolicy}
	}
	return trimmed
}

func trimStatuses(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	trimmed := make([]corev1.ContainerStatus, len(statuses))
	for i := range statuses {
		s := &statuses[i]
		trimmed[i] = corev1.ContainerStatus{
			Name: s.Name, State: s.State, LastTerminationState: s.LastTerminationState,
		}
	}
	return trimmed
}
