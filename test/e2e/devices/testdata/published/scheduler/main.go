// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// A scheduler plugin in the pattern of those that were written for the published KubeDevice: it
// keeps the nodes in maps without a lock, and writes into the maps of its arguments without
// a check for nil. It requests pairs of chips where a container counts chips.
package main

import (
	"fmt"

	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

const (
	chips types.ResourceName = "example.com/chip"
	// pairs is a request of the pod: 1, which is the default, for pairs of chips; 0 for any chips.
	pairs types.ResourceName = "chip/in-pairs"
)

type scheduler struct{ nodes map[string]types.ResourceList }

var _ devicescheduler.DeviceScheduler = (*scheduler)(nil)

// CreateDeviceSchedulerPlugin is the entry point.
func CreateDeviceSchedulerPlugin() (devicescheduler.DeviceScheduler, error) {
	return &scheduler{nodes: map[string]types.ResourceList{}}, nil
}

func (*scheduler) GetName() string           { return "published" }
func (*scheduler) UsingGroupScheduler() bool { return true }

func (s *scheduler) AddNode(name string, node *types.NodeInfo) {
	s.nodes[name] = node.Allocatable
	for resource := range node.Allocatable {
		node.Scorer[resource] = 1
	}
	node.KubeAlloc[chips] = node.Allocatable[chips]
}

func (s *scheduler) RemoveNode(name string) { delete(s.nodes, name) }

func (s *scheduler) PodFitsDevice(node *types.NodeInfo, pod *types.PodInfo,
	_ bool) (bool, []devicescheduler.PredicateFailureReason, float64) {
	if err := s.PodAllocate(node, pod); err != nil {
		reason := resource.NewInsufficientResourceError(chips, 0, 0, node.Allocatable[chips])
		return false, []devicescheduler.PredicateFailureReason{reason}, 0
	}
	return true, nil, 0
}

func (s *scheduler) PodAllocate(node *types.NodeInfo, pod *types.PodInfo) error {
	if _, ok := pod.Requests[pairs]; !ok {
		pod.Requests[pairs] = 1
	}
	for _, containers := range []map[string]types.ContainerInfo{pod.InitContainers, pod.RunningContainers} {
		for name, container := range containers {
			if err := s.translate(node, &container, pod.Requests[pairs] == 1); err != nil {
				return fmt.Errorf("container %q: %w", name, err)
			}
			containers[name] = container
		}
	}
	return nil
}

// translate writes what the container counts into its Requests, and from there into DevRequests.
func (s *scheduler) translate(node *types.NodeInfo, container *types.ContainerInfo, paired bool) error {
	count := max(container.KubeRequests[chips], container.Requests[chips])
	container.Requests[chips] = count
	if count > node.Allocatable[chips] {
		return fmt.Errorf("%d chips requested, the node has %d", count, node.Allocatable[chips])
	}
	written := types.ResourceList{}
	for i := range count {
		key := fmt.Sprintf("chip/%d/cards", i)
		if paired {
			key = fmt.Sprintf("pair/%d/%s", i/2, key)
		}
		resource.AddGroupResource(written, key, 1)
	}
	_, lifted := resource.TranslateResource(node.Allocatable, written, "pair", "chip")
	for name, quantity := range lifted {
		container.Requests[name] = quantity
		container.DevRequests[name] = quantity
		container.Scorer[name] = 1
	}
	return nil
}

func (*scheduler) TakePodResources(node *types.NodeInfo, pod *types.PodInfo) error {
	return account(node, pod, 1)
}

func (*scheduler) ReturnPodResources(node *types.NodeInfo, pod *types.PodInfo) error {
	return account(node, pod, -1)
}

// account keeps the count of chips in use; the group scheduler keeps the chips themselves.
func account(node *types.NodeInfo, pod *types.PodInfo, sign int64) error {
	for name := range pod.RunningContainers {
		container := pod.GetContainerInPod(name)
		container.Requests[chips] = int64(len(container.AllocateFrom))
		node.Used[chips] += sign * container.Requests[chips]
	}
	return nil
}
