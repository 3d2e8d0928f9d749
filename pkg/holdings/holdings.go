// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package holdings says what bound pods hold, from the objects of the API server: it joins pods,
// the annotations that package deviceinfo reads, and what package grouptree counts. It knows
// neither the scheduler nor its plugins. All functions are pure and safe for concurrent use.
package holdings

import (
	corev1 "k8s.io/api/core/v1"
	apitypes "k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/grouptree"
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

// ReportedBy reads what a node reports, in its annotation KubeDevice/Holders, that pods hold. It is
// nil when the node reports nothing. The error is that of [deviceinfo.DecodeHolders].
func ReportedBy(node *corev1.Node) (map[apitypes.UID]*deviceinfo.Holder, error) {
	list, err := deviceinfo.DecodeHolders(node.Annotations[deviceinfo.HoldersAnnotation])
	if err != nil || len(list) == 0 {
		return nil, err
	}
	reported := make(map[apitypes.UID]*deviceinfo.Holder, len(list))
	for i := range list {
		reported[list[i].UID] = &list[i]
	}
	return reported, nil
}

// Reported returns as an allocation of the pod what its node reports that the pod holds. A request
// is called as the resource that serves it.
func Reported(reported *deviceinfo.Holder, pod *corev1.Pod) *types.PodInfo {
	initial := map[string]bool{}
	for i := range pod.Spec.InitContainers {
		initial[pod.Spec.InitContainers[i].Name] = !deviceinfo.IsSidecar(&pod.Spec.InitContainers[i])
	}
	allocation := types.NewPodInfo()
	allocation.Name, allocation.NodeName = pod.Name, pod.Spec.NodeName
	for name, granted := range reported.Containers {
		container := types.NewContainerInfo()
		for resource, quantity := range granted {
			container.DevRequests[resource], container.AllocateFrom[resource] = quantity, resource
		}
		if initial[name] {
			allocation.InitContainers[name] = *container
		} else {
			allocation.RunningContainers[name] = *container
		}
	}
	return allocation
}
