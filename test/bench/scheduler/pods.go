// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/plugins/gpu"
	"github.com/kubedevice/kubedevice/test/kube"
)

// podName returns the name of the pod of that number in a batch, which its claim has too. No other
// batch has it.
func podName(batch, number int) string { return fmt.Sprintf("pod-%05d-%05d", batch, number) }

// podOf returns a pod, for the scheduler of that name.
func podOf(a request, name, scheduler string) *corev1.Pod {
	pod := kube.NewPod(name, "busybox")
	pod.Spec.SchedulerName = scheduler
	resources := &pod.Spec.Containers[0].Resources
	resources.Requests = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi"),
	}
	if a.gpus > 0 {
		count := *resource.NewQuantity(a.gpus, resource.DecimalSI)
		resources.Requests[corev1.ResourceName(gpu.Resource)] = count
		resources.Limits = corev1.ResourceList{corev1.ResourceName(gpu.Resource): count}
	}
	if a.annotation != "" {
		pod.Annotations = map[string]string{deviceinfo.Annotation: a.annotation}
	}
	if a.claimed > 0 {
		pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: claimName, ResourceClaimName: &pod.Name}}
		resources.Claims = []corev1.ResourceClaim{{Name: claimName}}
	}
	return pod
}

// claimName is what pods call their claim.
const claimName = "gpus"

// claimOf returns a claim for devices of one NVLink pair.
func claimOf(name string, devices int) *resourceapi.ResourceClaim {
	spec := resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
		Name: claimName,
		Exactly: &resourceapi.ExactDeviceRequest{
			DeviceClassName: draDriver, AllocationMode: resourceapi.DeviceAllocationModeExactCount,
			Count: int64(devices),
		},
	}}}
	if devices > 1 {
		spec.Constraints = []resourceapi.DeviceConstraint{{MatchAttribute: ptr.To[resourceapi.FullyQualifiedName](
			draDriver + "/" + pairAttribute)}}
	}
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault},
		Spec:       resourceapi.ResourceClaimSpec{Devices: spec},
	}
}
