// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// PodAllocation returns the allocation of a bound pod, with every container of its spec as
// PodRequest has them.
//
// It returns ErrNoAllocation when the pod is not bound or its annotation does not contain the
// scheduler's decision, ErrForeignAllocation when the decision is for another node or pod, and
// ErrMalformed when the annotation is invalid or does not match the pod's containers; see
// errors.Is. It checks nothing else: the node's inventory decides whether the resources exist.
func PodAllocation(pod *corev1.Pod) (*types.PodInfo, error) {
	if pod.Spec.NodeName == "" {
		return nil, fmt.Errorf("pod %s/%s is not bound: %w", pod.Namespace, pod.Name, ErrNoAllocation)
	}
	value, annotated := pod.Annotations[Annotation]
	if !annotated {
		return nil, noAnnotation(pod.Name)
	}
	info, err := DecodePod(value)
	if err != nil {
		return nil, err
	}
	if err := checkBound(info, pod.Name, pod.Spec.NodeName); err != nil {
		return nil, err
	}
	if err := addSpec(info, &pod.Spec); err != nil {
		return nil, err
	}
	return info, nil
}

// MayAllocate reports whether an annotation may contain the scheduler's decision. It does not
// decode the annotation, as users can write long ones without a decision. It errs toward true.
func MayAllocate(value string) bool {
	return strings.Contains(value, `"nodename"`) || strings.Contains(value, `\`) // in an escaped name
}

// BoundPod is the data of a bound pod that a node has without the pod's object.
type BoundPod struct {
	Name, NodeName string
	// InitContainers and RunningContainers are the names of its containers. Restartable init
	// containers (sidecars) are among the running ones.
	InitContainers, RunningContainers []string
}

// Allocation is PodAllocation for a pod with a decoded annotation: written is nil for a pod without
// one, and shares its lists with the result. KubeRequests are nil.
func (p BoundPod) Allocation(written *types.PodInfo) (*types.PodInfo, error) {
	if written == nil {
		return nil, noAnnotation(p.Name)
	}
	if err := checkBound(written, p.Name, p.NodeName); err != nil {
		return nil, err
	}
	pick := func(from map[string]types.ContainerInfo, names []string) map[string]types.ContainerInfo {
		containers := make(map[string]types.ContainerInfo, len(names))
		for _, name := range names {
			containers[name] = from[name]
		}
		return containers
	}
	info := *written
	err := setContainers(&info, pick(info.InitContainers, p.InitContainers),
		pick(info.RunningContainers, p.RunningContainers))
	if err != nil {
		return nil, err
	}
	return &info, nil
}

// notOurs explains why a pod has no allocation, with the next step.
const notOurs = "the device scheduler did not bind the pod; create it again, without spec.nodeName and for the " +
	"device scheduler"

func noAnnotation(podName string) error {
	return fmt.Errorf("pod %q has no annotation %s: %s: %w", podName, Annotation, notOurs, ErrNoAllocation)
}

// checkBound checks that the annotation has the scheduler's decision, for the pod of that name on
// the node of that name.
func checkBound(info *types.PodInfo, podName, nodeName string) error {
	switch {
	case info.NodeName == "":
		return fmt.Errorf("annotation %s of pod %q names no node: %s: %w",
			Annotation, podName, notOurs, ErrNoAllocation)
	case info.NodeName != nodeName:
		return fmt.Errorf(
			"annotation %s of pod %q is for node %q, not %q: delete the pod to have it scheduled again: %w", Annotation,
			podName, info.NodeName, nodeName, ErrForeignAllocation,
		)
	case info.Name != podName:
		return fmt.Errorf("annotation %s of pod %q is for pod %q: delete the pod to have it scheduled again: %w",
			Annotation, podName, info.Name, ErrForeignAllocation)
	}
	return nil
}
