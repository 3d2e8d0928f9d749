// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"errors"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// allocation is what a bound pod holds.
type allocation struct {
	pod *corev1.Pod
	// containers are the device resources of each container.
	containers map[string]types.ResourceList
	// held is the most of each resource that the pod uses at any time.
	held     types.ResourceList
	reported bool // by the node
}

// allocationOf returns what a bound pod holds, or nil for a pod without an allocation. reported is
// what its node reports of it, or nil. The error says why the pod's annotation does not count.
func allocationOf(pod *corev1.Pod, reported *deviceinfo.Holder) (*allocation, error) {
	if reported != nil {
		held := grouptree.Holdings(reported.Allocation(pod), request.Containers(pod))
		return &allocation{pod: pod, containers: reported.Containers, held: held, reported: true}, nil
	}
	if pod.Annotations[deviceinfo.Annotation] == "" {
		return nil, nil
	}
	info, err := deviceinfo.PodAllocation(pod)
	switch {
	case errors.Is(err, deviceinfo.ErrNoAllocation):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &allocation{
		pod:        pod,
		containers: deviceinfo.HolderOf(pod.UID, pod.Namespace, pod.Name, info).Containers,
		held:       grouptree.Holdings(info, request.Containers(pod)),
	}, nil
}

// state returns Granted for a container that the node reports in either way, else Bound.
func (a *allocation) state(container string) State {
	if a.reported || started(a.pod, container) {
		return Granted
	}
	return Bound
}

// started reports whether the kubelet reports that a container has ever started.
func started(pod *corev1.Pod, container string) bool {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range list {
			if s := &list[i]; s.Name == container {
				return s.State.Running != nil || s.State.Terminated != nil || s.LastTerminationState.Terminated != nil
			}
		}
	}
	return false
}

// finished reports whether a pod has ended, and so holds nothing.
func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
