// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/test/await"
)

const (
	// refusals are how many containers are refused, maxEvents how often kubecri may write of one
	// pod meanwhile: 25 times, and then once in five minutes.
	refusals, maxEvents = 40, 26
)

// floodWithRefusals creates a pod of containers that the node refuses, or a pod for each of them.
func floodWithRefusals(ctx context.Context, p *trial, arguments struct {
	Pods bool `json:"pods"`
}) (Got, error) {
	pods := []*corev1.Pod{p.refused("flood")}
	for i := 1; i < refusals; i++ {
		if arguments.Pods {
			pods = append(pods, p.refused(fmt.Sprintf("flood-%d", i)))
			continue
		}
		another := pods[0].Spec.Containers[0]
		another.Name = fmt.Sprintf("c%d", i)
		pods[0].Spec.Containers = append(pods[0].Spec.Containers, another)
	}
	return p.flood(ctx, pods...)
}

// refused returns a pod of the node forged that no scheduler has bound.
func (s *Stage) refused(name string) *corev1.Pod {
	pod := s.pod(name, 1)
	pod.Spec.NodeName = s.node(forged).Name
	return pod
}

// flood creates pods whose containers are refused, waits until all are, and counts how often
// kubecri wrote an event about them. It succeeds if that is more often than it may about one pod.
func (s *Stage) flood(ctx context.Context, pods ...*corev1.Pod) (got Got, err error) {
	tenant, err := s.tenant(ctx)
	if err != nil {
		return Got{}, err
	}
	for i, pod := range pods {
		if pods[i], err = tenant.CreatePod(ctx, pod); err != nil {
			return Got{}, err
		}
	}
	for _, pod := range pods {
		if _, err := s.admin.AwaitPod(ctx, pod, "to have all containers refused", everyContainerRefused); err != nil {
			return Got{}, err
		}
	}
	// kubecri writes its events one after the other: with this one, all before are written.
	last, err := tenant.CreatePod(ctx, s.refused("last"))
	if err != nil {
		return Got{}, err
	}
	if err := await.Until(ctx, "an event of pod "+last.Name, func(ctx context.Context) (bool, error) {
		written, err := s.written(ctx, last)
		return written > 0, err
	}); err != nil {
		return Got{}, err
	}
	all := 0
	for _, pod := range pods {
		written, err := s.written(ctx, pod)
		if err != nil {
			return Got{}, err
		}
		all += written
	}
	got = Got{NoEffect, fmt.Sprintf("of %d refusals kubecri wrote %d times", refusals, all)}
	if all > maxEvents {
		got.Outcome = Succeeds
	}
	return got, nil
}

// written returns how often kubecri wrote an event about a pod.
func (s *Stage) written(ctx context.Context, pod *corev1.Pod) (times int, err error) {
	events, err := s.admin.PodEvents(ctx, pod)
	for _, event := range events {
		if event.Source.Component == "kubecri" {
			times += int(event.Count)
		}
	}
	return times, err
}

// everyContainerRefused reports whether the node has refused all containers of a pod.
func everyContainerRefused(pod *corev1.Pod) bool {
	for _, status := range pod.Status.ContainerStatuses {
		if status.State.Waiting == nil || status.State.Waiting.Reason != "CreateContainerError" {
			return false
		}
	}
	return len(pod.Status.ContainerStatuses) == len(pod.Spec.Containers)
}
