// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"context"
	"slices"

	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
	alphaapi "k8s.io/kubelet/pkg/apis/podresources/v1alpha1"
)

// lister answers calls of version v1.
type lister struct {
	podresourcesapi.UnimplementedPodResourcesListerServer
	kubelet string // its socket
	client  podresourcesapi.PodResourcesListerClient
	server  *Server
}

var _ podresourcesapi.PodResourcesListerServer = (*lister)(nil)

// List returns the active pods of this node, with the devices of their containers.
func (l *lister) List(ctx context.Context,
	request *podresourcesapi.ListPodResourcesRequest) (*podresourcesapi.ListPodResourcesResponse, error) {
	answer, err := query(ctx, l.kubelet, l.client.List, request)
	if err != nil {
		return nil, err
	}
	// Read the grants after the call, so that they include those of all pods in the answer.
	now := l.server.holdings(ctx, listing{pods: namesOf(answer.GetPodResources()...), all: true})
	for _, pod := range answer.GetPodResources() {
		addDevices(pod, now)
	}
	return answer, nil
}

// Get returns the devices of the containers of one pod.
func (l *lister) Get(ctx context.Context,
	request *podresourcesapi.GetPodResourcesRequest) (*podresourcesapi.GetPodResourcesResponse, error) {
	answer, err := query(ctx, l.kubelet, l.client.Get, request)
	if err != nil {
		return nil, err
	}
	addDevices(answer.GetPodResources(), l.server.holdings(ctx, listing{pods: namesOf(answer.GetPodResources())}))
	return answer, nil
}

// GetAllocatableResources returns the healthy devices of this node, held or not.
func (l *lister) GetAllocatableResources(ctx context.Context,
	request *podresourcesapi.AllocatableResourcesRequest) (*podresourcesapi.AllocatableResourcesResponse, error) {
	answer, err := query(ctx, l.kubelet, l.client.GetAllocatableResources, request)
	if err != nil {
		return nil, err
	}
	devices := l.server.options.Devices.Devices()
	answer.Devices = append(knownEntries(answer.GetDevices(), devices), entries(devices.Healthy())...)
	return answer, nil
}

// namesOf returns the names of the pods that the kubelet lists.
func namesOf[Pod interface {
	GetNamespace() string
	GetName() string
}](listed ...Pod) []podName {
	names := make([]podName, len(listed))
	for i, pod := range listed {
		names[i] = podName{pod.GetNamespace(), pod.GetName()}
	}
	return names
}

// knownEntries returns the kubelet's entries that have a meaning.
func knownEntries[Entry interface{ GetResourceName() string }](all []Entry, devices Devices) []Entry {
	return slices.DeleteFunc(all, func(entry Entry) bool { return devices.replaces(entry.GetResourceName()) })
}

// addDevices adds the devices of the pod's containers.
func addDevices(pod *podresourcesapi.PodResources, now holdings) {
	for _, container := range pod.GetContainers() {
		held := now.deviceList(podName{pod.GetNamespace(), pod.GetName()}, container.GetName())
		container.Devices = append(knownEntries(container.GetDevices(), now.devices), entries(held)...)
	}
}

// alphaLister answers calls of version v1alpha1, which the kubelet serves for older agents.
type alphaLister struct {
	alphaapi.UnimplementedPodResourcesListerServer
	kubelet string // its socket
	client  alphaapi.PodResourcesListerClient
	server  *Server
}

var _ alphaapi.PodResourcesListerServer = (*alphaLister)(nil)

// List returns the pods that the kubelet lists in this version, with the devices of their
// containers.
func (l *alphaLister) List(ctx context.Context,
	request *alphaapi.ListPodResourcesRequest) (*alphaapi.ListPodResourcesResponse, error) {
	answer, err := query(ctx, l.kubelet, l.client.List, request)
	if err != nil {
		return nil, err
	}
	now := l.server.holdings(ctx, listing{pods: namesOf(answer.GetPodResources()...), all: true})
	for _, pod := range answer.GetPodResources() {
		for _, container := range pod.GetContainers() {
			held := now.deviceList(podName{pod.GetNamespace(), pod.GetName()}, container.GetName())
			container.Devices = append(knownEntries(container.GetDevices(), now.devices), alphaEntries(held)...)
		}
	}
	return answer, nil
}
