// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package types holds the data that the host and its plugins exchange: what a node has, what a pod asks for, and which
// of the node's devices a container gets.
//
// All types are plain data without locks. The host hands each call its own copy and takes back only what the call's
// documentation names, so a plugin may keep nothing of an argument after it returns.
//
// The JSON form of NodeInfo and PodInfo is the value of the annotation KubeDevice/DeviceInfo on nodes and pods.
package types

import "maps"

// DeviceGroupPrefix begins the name of every device resource. See ResourceName.
const DeviceGroupPrefix = "resource/group"

// ResourceName names a countable resource of a node.
//
// A name under DeviceGroupPrefix is a path: resource/group/<level>/<instance>/…/<resource>. In a node's lists the
// instances are the node's own (resource/group/gpugrp0/0/gpu/GPU-7f3a/memory). In a request they are placeholders:
// requests of one container that share a placeholder must be met inside the same group. Any other name, such as
// nvidia.com/gpu, is a plain count.
//
// A path whose last segment begins with "enum", in any case, is a bit mask instead of a quantity.
type ResourceName string

// ResourceList maps names to quantities in base units: devices, bytes, or a bit mask for enum resources.
type ResourceList map[ResourceName]int64

// ResourceLocation maps each device request of a container to the resource of the node that serves it.
type ResourceLocation map[ResourceName]ResourceName

// ResourceScorer maps a device resource to the number of the scorer that decides fit and score for it:
// 0 default (enum left-over for enum resources, left-over for all others), 1 left-over, which packs, 2 enum left-over.
type ResourceScorer map[ResourceName]int32

// ContainerInfo is what one container asks for and what it was given. Users write Requests and Scorer; DevRequests and
// AllocateFrom belong to the scheduler, which overwrites whatever a user wrote there.
type ContainerInfo struct {
	// KubeRequests are the container's requests in the pod spec, by resource name, in base units.
	KubeRequests ResourceList `json:"-"`
	// Requests are the device requests as the user wrote them.
	Requests ResourceList `json:"requests,omitempty"`
	// DevRequests are the requests as a device scheduler translated them for one node: what is searched for.
	DevRequests ResourceList `json:"devrequests,omitempty"`
	// AllocateFrom says, for each of DevRequests, which resource of the node serves it.
	AllocateFrom ResourceLocation `json:"allocatefrom,omitempty"`
	// Scorer overrides the node's scorer for a resource that this container requests.
	Scorer ResourceScorer `json:"scorer,omitempty"`
}

// PodInfo is what one pod asks for and what it was given.
type PodInfo struct {
	// Name is the pod's name, without its namespace.
	Name string `json:"podname,omitempty"`
	// NodeName is the node that the allocation was made for. The scheduler writes it.
	NodeName string `json:"nodename,omitempty"`
	// Requests are device requests of the pod as a whole, such as gpu/gpu-generate-topology.
	Requests ResourceList `json:"requests,omitempty"`
	// InitContainers are the pod's init containers by name, those that run one after another.
	InitContainers map[string]ContainerInfo `json:"initcontainer,omitempty"`
	// RunningContainers are the pod's containers by name, and with them its restartable init containers (sidecars),
	// which run along with the rest.
	RunningContainers map[string]ContainerInfo `json:"runningcontainer,omitempty"`
}

// NodeInfo is what one node has.
type NodeInfo struct {
	// Name is the node's name.
	Name string `json:"name,omitempty"`
	// Capacity is all that the node has, sick devices included.
	Capacity ResourceList `json:"capacity,omitempty"`
	// Allocatable is what pods may be given.
	Allocatable ResourceList `json:"allocatable,omitempty"`
	// Used is what is in use. In a node's annotation it is use from outside Kubernetes; in the scheduler the holdings
	// of the node's pods are added to it.
	Used ResourceList `json:"used,omitempty"`
	// Scorer says how each resource is fitted and scored.
	Scorer ResourceScorer `json:"scorer,omitempty"`
	// KubeCap carries the node's status.capacity, in base units. A device plugin that sets a name here has the host
	// publish it as an extended resource.
	KubeCap ResourceList `json:"-"`
	// KubeAlloc carries the node's status.allocatable, in base units.
	KubeAlloc ResourceList `json:"-"`
}

// NewContainerInfo returns a ContainerInfo whose maps are made.
func NewContainerInfo() *ContainerInfo {
	return FillContainerInfo(&ContainerInfo{})
}

// FillContainerInfo makes those maps of fill that are nil and returns fill.
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

// NewPodInfo returns a PodInfo whose maps are made.
func NewPodInfo() *PodInfo {
	return &PodInfo{
		Requests:          ResourceList{},
		InitContainers:    map[string]ContainerInfo{},
		RunningContainers: map[string]ContainerInfo{},
	}
}

// GetContainerInPod returns a copy of the container of that name, running containers first, with its maps made. The
// maps that were there before are shared with p. It returns nil when p has no such container.
func (p *PodInfo) GetContainerInPod(name string) *ContainerInfo {
	for _, containers := range []map[string]ContainerInfo{p.RunningContainers, p.InitContainers} {
		if container, ok := containers[name]; ok {
			return FillContainerInfo(&container)
		}
	}
	return nil
}

// Clone returns a deep copy. Maps that are nil stay nil.
func (p *PodInfo) Clone() *PodInfo {
	clone := *p
	clone.Requests = maps.Clone(p.Requests)
	clone.InitContainers = cloneContainers(p.InitContainers)
	clone.RunningContainers = cloneContainers(p.RunningContainers)
	return &clone
}

func cloneContainers(containers map[string]ContainerInfo) map[string]ContainerInfo {
	clone := maps.Clone(containers)
	for name, c := range clone {
		clone[name] = ContainerInfo{
			KubeRequests: maps.Clone(c.KubeRequests),
			Requests:     maps.Clone(c.Requests),
			DevRequests:  maps.Clone(c.DevRequests),
			AllocateFrom: maps.Clone(c.AllocateFrom),
			Scorer:       maps.Clone(c.Scorer),
		}
	}
	return clone
}

// NewNodeInfo returns a NodeInfo whose maps are made.
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

// NewNodeInfoWithName returns a NodeInfo of that name whose maps are made.
func NewNodeInfoWithName(name string) *NodeInfo {
	ni := NewNodeInfo()
	ni.Name = name
	return ni
}

// Clone returns a deep copy. Maps that are nil stay nil.
func (ni *NodeInfo) Clone() *NodeInfo {
	clone := *ni
	clone.Capacity = maps.Clone(ni.Capacity)
	clone.Allocatable = maps.Clone(ni.Allocatable)
	clone.Used = maps.Clone(ni.Used)
	clone.Scorer = maps.Clone(ni.Scorer)
	clone.KubeCap = maps.Clone(ni.KubeCap)
	clone.KubeAlloc = maps.Clone(ni.KubeAlloc)
	return &clone
}

// AddGroupResource sets list["resource/group/"+key] to val. list must not be nil.
func AddGroupResource(list ResourceList, key string, val int64) {
	list[ResourceName(DeviceGroupPrefix+"/"+key)] = val
}
