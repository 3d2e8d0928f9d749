// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	corev1 "k8s.io/api/core/v1"
	apitypes "k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// HoldersOf reads what a node reports, in its annotation KubeDevice/Holders, that pods hold, by
// their UIDs. It is nil when the node reports nothing. The error is that of [DecodeHolders].
func HoldersOf(node *corev1.Node) (map[apitypes.UID]*Holder, error) {
	list, err := DecodeHolders(node.Annotations[HoldersAnnotation])
	if err != nil || len(list) == 0 {
		return nil, err
	}
	holders := make(map[apitypes.UID]*Holder, len(list))
	for i := range list {
		holders[list[i].UID] = &list[i]
	}
	return holders, nil
}

// Allocation returns as an allocation of the pod what its node reports that the pod holds. A
// request has the name of the resource that serves it.
func (h *Holder) Allocation(pod *corev1.Pod) *types.PodInfo {
	initial := map[string]bool{}
	for i := range pod.Spec.InitContainers {
		initial[pod.Spec.InitContainers[i].Name] = !IsSidecar(&pod.Spec.InitContainers[i])
	}
	allocation := types.NewPodInfo()
	allocation.Name, allocation.NodeName = pod.Name, pod.Spec.NodeName
	for name, granted := range h.Containers {
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
