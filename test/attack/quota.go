// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/image"
	"github.com/kubedevice/kubedevice/test/observe"
)

// quotas are attempts to have more devices than the limits count, in a namespace whose quota counts
// limits. Without the defence, the namespace has no quota.
func quotas() []*Attempt {
	const missing = "are missing"
	var attempts []*Attempt
	for _, way := range []struct {
		id, what, refusal string
		requests          string // the annotation
		shape             func(pod *corev1.Pod)
		allowed           int // what the limits count
	}{
		{"quota-annotation", "requests 3 GPUs in the annotation and 1 in the limits", missing,
			forMain(cards("a", "b", "c")), nil, 1},
		{"quota-no-limit", "requests 2 GPUs in the annotation and none in the limits", missing,
			forMain(cards("a", "b")), limits("main", -1), 0},
		{"quota-zero", "requests 2 GPUs in the annotation and 0 in the limits", missing,
			forMain(cards("a", "b")), limits("main", 0), 0},
		{"quota-grouped", "requests a pair with NVLink in the annotation and 1 in the limits", missing,
			forMain(`"gpugrp0/a/gpu/x/cards":1,"gpugrp0/a/gpu/y/cards":1`), nil, 1},
		{"quota-full-names", "does so by the devices' full names", missing,
			forMain(`"resource/group/gpu/a/cards":1,"resource/group/gpu/b/cards":1`), nil, 1},
		{"quota-second", "requests a GPU for a second container without a limit", missing,
			`{"runningcontainer":{"second":{"requests":{` + cards("a") + `}}}}`, second, 1},
		{"quota-init", "requests 2 GPUs for an init container without a limit", missing,
			`{"initcontainer":{"second":{"requests":{` + cards("a", "b") + `}}}}`, first, 1},
	} {
		try := func(quota bool) Try {
			return func(ctx context.Context, s *Stage) (Got, error) {
				tenant, err := s.tenant(ctx)
				if err != nil {
					return Got{}, err
				}
				if quota {
					if err := s.makeQuota(ctx, 8); err != nil {
						return Got{}, err
					}
				}
				pod := clustertest.On(s.node(scheduled).Name, s.pod("greedy", 1))
				pod.Annotations = map[string]string{deviceinfo.Annotation: way.requests}
				if way.shape != nil {
					way.shape(pod)
				}
				got, err := s.runs(ctx, tenant, pod)
				if err != nil || got.Outcome != Succeeds {
					return got, err
				}
				return s.counted(ctx, pod.Name, way.allowed)
			}
		}
		attempts = append(attempts, &Attempt{
			ID: way.id, Who: Tenant, What: way.what, Defence: Quota, Try: try(true),
			Want: everywhere(RefusedByScheduler, way.refusal), Off: Off{How: "the namespace has no quota",
				Try: try(false)},
		})
	}
	attempts[0].Sample = true
	return append(attempts, &Attempt{
		ID: "quota-shares", Who: Tenant, Defence: Quota, Try: hasShare, Want: everywhere(Succeeds, "can open"),
		What: "has a GPU by a share of more than half of its memory, in a namespace with a quota of 0 GPUs",
		Off:  Off{How: "nothing: a quota of devices does not count shares of a device's memory"},
	})
}

// hasShare requests a share that leaves no other pod as large a one. It succeeds if the container
// can open a device.
func hasShare(ctx context.Context, s *Stage) (Got, error) {
	tenant, err := s.tenant(ctx)
	if err != nil {
		return Got{}, err
	}
	if err := s.makeQuota(ctx, 0); err != nil {
		return Got{}, err
	}
	pod := clustertest.On(s.node(scheduled).Name, s.pod("greedy", 0))
	pod.Annotations = map[string]string{deviceinfo.Annotation: forMain(`"gpu/a/memory":"41Gi"`)}
	got, err := s.runs(ctx, tenant, pod)
	if err != nil || got.Outcome != Succeeds {
		return got, err
	}
	return s.counted(ctx, pod.Name, 0)
}

// cards are requests for so many GPUs, one for each name.
func cards(names ...string) (requests string) {
	for i, name := range names {
		if i > 0 {
			requests += ","
		}
		requests += fmt.Sprintf(`"gpu/%s/cards":1`, name)
	}
	return requests
}

// forMain is the annotation with requests for the container main.
func forMain(requests string) string {
	return `{"runningcontainer":{"main":{"requests":{` + requests + `}}}}`
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

// second adds a container without limits.
func second(pod *corev1.Pod) {
	pod.Spec.Containers = append(pod.Spec.Containers,
		corev1.Container{Name: "second", Image: image.Busybox, Command: clustertest.Idle})
}

// first adds an init container without limits.
func first(pod *corev1.Pod) {
	pod.Spec.InitContainers = []corev1.Container{{Name: "second", Image: image.Busybox, Command: clustertest.Idle}}
}

// makeQuota makes a quota for the attempt's namespace.
func (s *Stage) makeQuota(ctx context.Context, gpus int64) error {
	_, err := s.admin.CoreV1().ResourceQuotas(s.namespace).Create(ctx, &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "gpus"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
			"requests." + observe.Resource: *resource.NewQuantity(gpus, resource.DecimalSI),
		}},
	}, metav1.CreateOptions{})
	return err
}

// counted returns what came of a pod that runs: it succeeds if its containers together can open
// more devices than allowed.
func (s *Stage) counted(ctx context.Context, name string, allowed int) (Got, error) {
	pod, err := s.admin.CoreV1().Pods(s.namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return Got{}, err
	}
	var all []string
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if status.State.Running == nil {
			continue
		}
		visible, err := s.visible(ctx, pod, status.Name)
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
