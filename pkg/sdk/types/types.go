// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package types holds the data that the host and its plugins exchange: what a node has, what a pod
// requests, and which of the node's devices a container is allocated.
//
// All types are plain data without locks. The host makes a copy for each call of a plugin and takes
// back only what the documentation of the call names; a plugin keeps no argument after it returns.
//
// No map of an argument is nil: not in a NodeInfo, not in a PodInfo, not in any ContainerInfo. A
// plugin may write into each of them. A PodInfo has an entry for every container of the pod's spec,
// also when the pod has no annotation or one that names no container. An empty map and a nil one
// are the same content everywhere.
//
// The JSON form of NodeInfo and PodInfo is the value of the annotation KubeDevice/DeviceInfo on
// nodes and pods.
package types

import (
	"iter"
	"maps"
)

// DeviceGroupPrefix begins the name of every device resource. See ResourceName.
const DeviceGroupPrefix = "resource/group"

// ResourceName names a countable resource of a node.
//
// A name under DeviceGroupPrefix is a path: resource/group/<level>/<instance>/…/<resource>. In a
// node's lists the instances are the node's own (resource/group/gpugrp0/0/gpu/GPU-7f3a/memory). In
// a request they are placeholders: requests of one container that share a placeholder must be met
// inside the same group. Any other name, such as nvidia.com/gpu, is a plain count.
//
// A path whose last segment begins with "enum", in any case, is a bit mask instead of a quantity.
type ResourceName string

// ResourceList maps names to quantities in base units: devices, bytes, or a bit mask for enum
// resources.
type ResourceList map[ResourceName]int64

// ResourceLocation maps each device request of a container to the resource of the node that serves
// it.
type ResourceLocation map[ResourceName]ResourceName

// ResourceScorer maps a device resource to the number of the scorer that decides fit and score for
// it: 0 default (enum left-over for enum resources, left-over for all others), 1 left-over, which
// packs, 2 enum left-over.
type ResourceScorer map[ResourceName]int32

// ContainerInfo is what one container requests and what it is allocated. Users write Requests and
// Scorer; DevRequests and AllocateFrom belong to the scheduler, which overwrites what a user
// wrote there.
type ContainerInfo struct {
	// KubeRequests are the container's requests in the pod spec, by resource name, in base units.
	// They are empty on the node, where only the allocation counts.
	KubeRequests ResourceList `json:"-"`
	// Requests are the device requests as the user wrote them.
	Requests ResourceList `json:"requests,omitempty"`
	// DevRequests are the requests as a device scheduler translated them for one node: what is
	// searched for.
	DevRequests ResourceList `json:"devrequests,omitempty"`
	// AllocateFrom names, for each of DevRequests, the resource of the node that serves it.
	AllocateFrom ResourceLocation `json:"allocatefrom,omitempty"`
	// Scorer overrides the node's scorer for a resource that this container requests.
	Scorer ResourceScorer `json:"scorer,omitempty"`
}

// PodInfo is what one pod requests and what it is allocated.
type PodInfo struct {
	// Name is the pod's name, without its namespace.
	Name string `json:"podname,omitempty"`
	// NodeName is the node that the allocation is for. The scheduler writes it.
	NodeName string `json:"nodename,omitempty"`
	// Requests are device requests of the pod as a whole, such as gpu/gpu-generate-topology.
	Requests ResourceList `json:"requests,omitempty"`
	// InitContainers are the pod's init containers by name, those that run one after another.
	InitContainers map[string]ContainerInfo `json:"initcontainer,omitempty"`
	// RunningContainers are the pod's containers by name, and with them its restartable init
	// containers (sidecars), which run along with the rest.
	RunningContainers map[string]ContainerInfo `json:"runningcontainer,omitempty"`
}

// NodeInfo is what one node has.
type NodeInfo struct {
	// Name is the node's name.
	Name string `json:"name,omitempty"`
	// Capacity is all that the node has, unhealthy devices included.
	Capacity ResourceList `json:"capacity,omitempty"`
	// Allocatable is what the scheduler may allocate to pods.
	Allocatable ResourceList `json:"allocatable,omitempty"`
	// Used is what is in use. In a node's annotation it is use from outside Kubernetes; in the
	// scheduler the holdings of the node's pods are added to it.
	Used ResourceList `json:"used,omitempty"`
	// Scorer is the scorer of each resource; see ResourceScorer.
	Scorer ResourceScorer `json:"scorer,omitempty"`
	// KubeCap carries the node's status.capacity, in base units. A device plugin that sets a name
	// here has the host publish it as an extended resource.
	KubeCap ResourceList `json:"-"`
	// KubeAlloc carries the node's status.allocatable, in base units.
	KubeAlloc ResourceList `json:"-"`
}

// NewContainerInfo returns a ContainerInfo without entries. No map of it is nil.
func NewContainerInfo() *ContainerInfo {
	return FillContainerInfo(&ContainerInfo{})
}

// FillContainerInfo replaces each nil map of fill by an empty one and returns fill.
func FillContainerInfo(fill *ContainerInfo) *ContainerInfo {
	for _, list := range []*ResourceList{&fill.KubeRequests, &fill.Requests, &fill.DevRequests} {
		if *list == nil {
			*list = ResourceList{}
		}
	}
	if fill.AllocateFrom == nil {
		fill.AllocateFrom = ResourceLocation{}
	}
	if fill.Scorer == nil {
		fill.Scorer = ResourceScorer{}
	}
	return fill
}

// Clone returns a deep copy. No map of the copy is nil: where c has none, the copy has an empty
// one.
func (c *ContainerInfo) Clone() *ContainerInfo {
	return &ContainerInfo{
		KubeRequests: clone(c.KubeRequests),
		Requests:     clone(c.Requests),
		DevRequests:  clone(c.DevRequests),
		AllocateFrom: clone(c.AllocateFrom),
		Scorer:       clone(c.Scorer),
	}
}

// NewPodInfo returns a PodInfo without entries. No map of it is nil.
func NewPodInfo() *PodInfo {
	return &PodInfo{
		Requests:          ResourceList{},
		InitContainers:    map[string]ContainerInfo{},
		RunningContainers: map[string]ContainerInfo{},
	}
}

// GetContainerInPod returns a copy of the container of that name, running containers first. No map
// of the copy is nil; those that p has are shared with p. It returns nil when p has no such
// container.
func (p *PodInfo) GetContainerInPod(name string) *ContainerInfo {
	for _, containers := range []map[string]ContainerInfo{p.RunningContainers, p.InitContainers} {
		if container, ok := containers[name]; ok {
			return FillContainerInfo(&container)
		}
	}
	return nil
}

// Containers yields every container of the pod with its name: init containers first, then running
// ones, each of the two in no order. The maps of what it yields are those that p has. The pod may
// not get or lose containers meanwhile; one that is yielded may be replaced under its name.
func (p *PodInfo) Containers() iter.Seq2[string, ContainerInfo] {
	return func(yield func(string, ContainerInfo) bool) {
		for name, container := range p.InitContainers {
			if !yield(name, container) {
				return
			}
		}
		for name, container := range p.RunningContainers {
			if !yield(name, container) {
				return
			}
		}
	}
}

// Clone returns a deep copy. No map of the copy is nil, in its containers neither: where p has
// none, the copy has an empty one.
func (p *PodInfo) Clone() *PodInfo {
	return &PodInfo{
		Name:              p.Name,
		NodeName:          p.NodeName,
		Requests:          clone(p.Requests),
		InitContainers:    cloneContainers(p.InitContainers),
		RunningContainers: cloneContainers(p.RunningContainers),
	}
}

func cloneContainers(containers map[string]ContainerInfo) map[string]ContainerInfo {
	copied := make(map[string]ContainerInfo, len(containers))
	for name, container := range containers {
		copied[name] = *container.Clone()
	}
	return copied
}

// NewNodeInfo returns a NodeInfo without entries. No map of it is nil.
func NewNodeInfo() *NodeInfo {
	return &NodeInfo{
		Capacity:    ResourceList{},
		Allocatable: ResourceList{},
		Used:        ResourceList{},
		Scorer:      ResourceScorer{},
		KubeCap:     ResourceList{},
		KubeAlloc:   ResourceList{},
	}
}

// NewNodeInfoWithName returns a NodeInfo of that name without entries. No map of it is nil.
func NewNodeInfoWithName(name string) *NodeInfo {
	ni := NewNodeInfo()
	ni.Name = name
	return ni
}

// Clone returns a deep copy. No map of the copy is nil: where ni has none, the copy has an empty
// one.
func (ni *NodeInfo) Clone() *NodeInfo {
	return &NodeInfo{
		Name:        ni.Name,
		Capacity:    clone(ni.Capacity),
		Allocatable: clone(ni.Allocatable),
		Used:        clone(ni.Used),
		Scorer:      clone(ni.Scorer),
		KubeCap:     clone(ni.KubeCap),
		KubeAlloc:   clone(ni.KubeAlloc),
	}
}

// clone returns a copy of m that is not nil.
func clone[M ~map[K]V, K comparable, V any](m M) M {
	if m == nil {
		return M{}
	}
	return maps.Clone(m)
}

// AddGroupResource sets list["resource/group/"+key] to val. list must not be nil.
func AddGroupResource(list ResourceList, key string, val int64) {
	list[ResourceName(DeviceGroupPrefix+"/"+key)] = val
}
