// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// PodAllocation returns the allocation of a bound pod, with every container of its spec as PodRequest has them.
//
// It returns ErrNoAllocation when the pod is not bound or its annotation does not carry the scheduler's decision,
// ErrForeignAllocation when that was made for another node or pod, and ErrMalformed when the annotation cannot be read
// or does not match the pod's containers; see errors.Is. Nothing else about an allocation is checked: whether its
// resources exist is for the node's inventory to say.
func PodAllocation(pod *corev1.Pod) (*types.PodInfo, error) {
	if pod.Spec.NodeName == "" {
		return nil, fmt.Errorf("pod %s/%s is not bound: %w", pod.Namespace, pod.Name, ErrNoAllocation)
	}
	info, err := allocationFor(pod.Annotations, pod.Name, pod.Spec.NodeName)
	if err != nil {
		return nil, err
	}
	if err := addSpec(info, &pod.Spec); err != nil {
		return nil, err
	}
	return info, nil
}

// notOurs is why a pod has no allocation, and what to do about it.
const notOurs = "the device scheduler did not bind the pod; create it anew, without spec.nodeName and for the device scheduler"

// allocationFor returns what annotations allocate to the pod of that name on the node of that name. Containers are those of
// the annotation.
func allocationFor(annotations map[string]string, podName, nodeName string) (*types.PodInfo, error) {
	value, ok := annotations[Annotation]
	if !ok {
		return nil, fmt.Errorf("pod %q has no annotation %s: %s: %w", podName, Annotation, notOurs, ErrNoAllocation)
	}
	info, err := DecodePod(value)
	if err != nil {
		return nil, err
	}
	switch {
	case info.NodeName == "":
		return nil, fmt.Errorf("annotation %s of pod %q names no node: %s: %w", Annotation, podName, notOurs, ErrNoAllocation)
	case info.NodeName != nodeName:
		return nil, fmt.Errorf("annotation %s of pod %q is for node %q, not %q: delete the pod to have it scheduled again: %w",
			Annotation, podName, info.NodeName, nodeName, ErrForeignAllocation)
	case info.Name != podName:
		return nil, fmt.Errorf("annotation %s of pod %q is for pod %q: delete the pod to have it scheduled again: %w",
			Annotation, podName, info.Name, ErrForeignAllocation)
	}
	return info, nil
}
