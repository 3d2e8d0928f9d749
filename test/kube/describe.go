// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// shownEvents is how many of a pod's events a description has.
const shownEvents = 10

// Describe reports in a few lines what a pod is doing: its phase, what holds its containers up, its
// last events. It is for error messages, so it says what it cannot find out instead of failing.
func (c *Client) Describe(ctx context.Context, pod *corev1.Pod) string {
	var out strings.Builder
	current, err := c.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil {
		fmt.Fprintf(&out, "  pod %s: %v\n", pod.Name, err)
	} else {
		describeStatus(&out, current)
	}
	events, err := c.PodEvents(ctx, pod)
	if err != nil {
		fmt.Fprintf(&out, "  events: %v\n", err)
	}
	for _, event := range events[max(0, len(events)-shownEvents):] {
		fmt.Fprintf(&out, "  event %s (%s): %s\n", event.Reason, source(event), event.Message)
	}
	return strings.TrimRight(out.String(), "\n")
}

func describeStatus(out *strings.Builder, pod *corev1.Pod) {
	fmt.Fprintf(out, "  pod %s: phase %s, node %q %s %s\n", pod.Name, pod.Status.Phase, pod.Spec.NodeName,
		pod.Status.Reason, pod.Status.Message)
	for _, condition := range pod.Status.Conditions {
		if condition.Status != corev1.ConditionTrue {
			fmt.Fprintf(out, "  not %s: %s %s\n", condition.Type, condition.Reason, condition.Message)
		}
	}
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		switch state := status.State; {
		case state.Waiting != nil:
			fmt.Fprintf(out, "  container %s waits: %s %s\n", status.Name, state.Waiting.Reason, state.Waiting.Message)
		case state.Terminated != nil:
			fmt.Fprintf(out, "  container %s ended: exit code %d, %s %s\n", status.Name, state.Terminated.ExitCode,
				state.Terminated.Reason, state.Terminated.Message)
		}
	}
}

// PodEvents returns the events of a pod, oldest first.
func (c *Client) PodEvents(ctx context.Context, pod *corev1.Pod) ([]corev1.Event, error) {
	list, err := c.CoreV1().Events(pod.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.Set{"involvedObject.kind": "Pod", "involvedObject.name": pod.Name}.String(),
	})
	if err != nil {
		return nil, fmt.Errorf("list the events of pod %s: %w", pod.Name, err)
	}
	events := slices.DeleteFunc(list.Items, func(event corev1.Event) bool {
		return pod.UID != "" && event.InvolvedObject.UID != pod.UID
	})
	slices.SortStableFunc(events,
		func(a, b corev1.Event) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return events, nil
}

func source(event corev1.Event) string {
	if event.ReportingController != "" {
		return event.ReportingController
	}
	return event.Source.Component
}
