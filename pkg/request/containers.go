// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package request

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Containers returns the pod's containers, init containers first, with the kind that says when they
// run.
func Containers(pod *corev1.Pod) []grouptree.Container {
	list := make([]grouptree.Container, 0, len(pod.Spec.InitContainers)+len(pod.Spec.Containers))
	for i := range pod.Spec.InitContainers {
		kind := grouptree.Init
		if deviceinfo.IsSidecar(&pod.Spec.InitContainers[i]) {
			kind = grouptree.Sidecar
		}
		list = append(list, grouptree.Container{Name: pod.Spec.InitContainers[i].Name, Kind: kind})
	}
	for i := range pod.Spec.Containers {
		list = append(list, grouptree.Container{Name: pod.Spec.Containers[i].Name, Kind: grouptree.Regular})
	}
	return list
}

// CountsExtended reports whether a container of the pod requests more than none of any extended
// resource, a device or not.
func CountsExtended(pod *corev1.Pod) bool {
	return Counts(pod, func(types.ResourceName) bool { return true })
}

// Counts reports whether a container of the pod requests more than none of an extended resource for
// which isDevice is true. The API server sees to it that requests and limits of such a resource are
// equal.
func Counts(pod *corev1.Pod, isDevice func(types.ResourceName) bool) bool {
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			for name, quantity := range containers[i].Resources.Requests {
				extended := types.ResourceName(name)
				if resource.IsExtendedResource(extended) && !quantity.IsZero() && isDevice(extended) {
					return true
				}
			}
		}
	}
	return false
}
