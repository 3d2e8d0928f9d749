// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Observation is what the two sides say of the devices of one container. Lists are sorted.
type Observation struct {
	Pod, Container, Node string
	// Annotated says whether the pod has the annotation KubeDevice/DeviceInfo.
	Annotated bool
	// Paths are the node's resources that the scheduler chose for the container, Chosen the devices
	// that they belong to.
	Paths, Chosen []string
	// Visible are the devices that the container finds and can open, Refused those of the node's
	// others that it can not.
	Visible, Refused []string

	onNode int
}

// Choice returns what the scheduler chose for a container of a bound pod: nothing where the pod has
// no allocation. Visible and Refused are left empty.
func (o *Observer) Choice(pod *corev1.Pod, container string) (*Observation, error) {
	s := &Observation{Pod: pod.Name, Container: container, Node: pod.Spec.NodeName,
		onNode: len(o.devices[pod.Spec.NodeName])}
	if _, s.Annotated = pod.Annotations[deviceinfo.Annotation]; !s.Annotated {
		return s, nil
	}
	allocation, err := deviceinfo.PodAllocation(pod)
	if errors.Is(err, deviceinfo.ErrNoAllocation) { // the annotation requests no device
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what %s was allocated: %w", s, err)
	}
	for _, containers := range []map[string]types.ContainerInfo{allocation.InitContainers,
		allocation.RunningContainers} {
		for _, path := range containers[container].AllocateFrom {
			s.Paths = append(s.Paths, string(path))
		}
	}
	slices.Sort(s.Paths)
	s.Chosen = deviceIDs(s.Paths)
	return s, nil
}

// Observe returns what the scheduler chose for a running container, and what it sees.
func (o *Observer) Observe(ctx context.Context, pod *corev1.Pod, container string) (*Observation, error) {
	s, err := o.Choice(pod, container)
	if err != nil {
		return nil, err
	}
	printed, err := o.client.Exec(ctx, pod, container, Probe(o.devices[pod.Spec.NodeName])...)
	if err != nil {
		return nil, err
	}
	return s, s.Read(printed)
}

// Agree returns an error unless the container has what the scheduler chose for it, and all else was
// refused.
func (s *Observation) Agree() error {
	var errs []error
	if !slices.Equal(s.Chosen, s.Visible) {
		errs = append(errs, fmt.Errorf("%s: the scheduler chose %q, the container has %q", s, s.Chosen, s.Visible))
	}
	if tried := len(s.Visible) + len(s.Refused); tried != s.onNode {
		errs = append(errs, fmt.Errorf("%s: of %d devices of node %s, %d were tried", s, s.onNode, s.Node, tried))
	}
	return errors.Join(errs...)
}

// String names pod and container.
func (s *Observation) String() string { return fmt.Sprintf("pod %s, container %s", s.Pod, s.Container) }

// deviceIDs returns the devices that resources such as …/gpu/<id>/cards belong to.
func deviceIDs(paths []string) []string {
	ids := map[string]bool{}
	for _, path := range paths {
		if _, after, found := strings.Cut(path, "/gpu/"); found {
			id, _, _ := strings.Cut(after, "/")
			ids[id] = true
		}
	}
	return slices.Sorted(maps.Keys(ids))
}
