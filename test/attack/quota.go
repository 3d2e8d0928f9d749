// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/observe"
)

// openMoreDevicesThan succeeds if the containers of the pod that was created last, which runs, can
// together open more devices than the limits count.
func openMoreDevicesThan(ctx context.Context, p *trial, count string) (Got, error) {
	allowed, err := strconv.Atoi(count)
	if err != nil {
		return Got{}, err
	}
	pod, err := p.admin.CoreV1().Pods(p.namespace).Get(ctx, p.created.Name, metav1.GetOptions{})
	if err != nil {
		return Got{}, err
	}
	var all []string
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if status.State.Running == nil {
			continue
		}
		visible, err := p.visible(ctx, pod, status.Name)
		if err != nil {
			return Got{}, err
		}
		all = append(all, visible...)
	}
	if len(all) > allowed {
		return Got{Succeeds, fmt.Sprintf("the containers can open %q, and the limits count %d", all, allowed)}, nil
	}
	return Got{NoEffect, fmt.Sprintf("the containers can open %q", all)}, nil
}

// limits gives a container a limit of GPUs, none if that is negative.
func limits(name string, gpus int64) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		for i := range pod.Spec.Containers {
			if pod.Spec.Containers[i].Name != name {
				continue
			}
			pod.Spec.Containers[i].Resources = corev1.ResourceRequirements{}
			if gpus >= 0 {
				pod.Spec.Containers[i].Resources = clustertest.Limits(
					map[corev1.ResourceName]int64{observe.Resource: gpus})
			}
		}
	}
}
