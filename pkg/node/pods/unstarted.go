// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// NeverStarted reports whether the kubelet has reported the container and never created it. It is
// false for a container of which no status is known.
func (p Pod) NeverStarted(container string) bool { return slices.Contains(p.Unstarted, container) }

// NoneStarted reports whether the kubelet has reported all containers of the pod and created none.
func (p Pod) NoneStarted() bool {
	hasStarted := func(c Container) bool { return !p.NeverStarted(c.Name) }
	return len(p.Unstarted) > 0 && !slices.ContainsFunc(p.Containers, hasStarted)
}

// unstarted returns the containers that the kubelet reports and never created, in the order of the
// pod's statuses.
func unstarted(pod *corev1.Pod) (names []string) {
	for _, statuses := range [][]corev1.ContainerStatus{
		pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses,
	} {
		for i := range statuses {
			status := &statuses[i]
			if status.ContainerID == "" && status.RestartCount == 0 && status.LastTerminationState.Terminated == nil {
				names = append(names, status.Name)
			}
		}
	}
	return names
}

// stripStatuses returns what unstarted reads.
func stripStatuses(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	kept := make([]corev1.ContainerStatus, len(statuses))
	for i := range statuses {
		kept[i] = corev1.ContainerStatus{
			Name: statuses[i].Name, ContainerID: statuses[i].ContainerID, RestartCount: statuses[i].RestartCount,
			LastTerminationState: statuses[i].LastTerminationState,
			State:                corev1.ContainerState{Terminated: statuses[i].State.Terminated},
		}
	}
	return kept
}
