// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gpu holds what the GPU plugins share: the names of GPUs in a node's inventory and in a
// container's allocation.
//
// A GPU is in two levels of groups, and has these resources:
//
//	resource/group/gpugrp1/<wide>/gpugrp0/<close>/gpu/<id>/cards  = 1
//	resource/group/gpugrp1/<wide>/gpugrp0/<close>/gpu/<id>/memory = bytes
//	resource/group/gpugrp1/<wide>/gpugrp0/<close>/gpu/<id>/cores  = 100
//
// A container that holds the card has the GPU for itself; one that holds memory, or memory and
// cores, shares it. A GPU without memory of its own is not shared, and has no cores. A GPU that is
// partitioned has none of them, and instances in its place:
//
//	resource/group/gpugrp1/<wide>/gpugrp0/<close>/gpu/<id>/gi/<number>/ci/<id>/mig-<profile> = 1
package gpu

import (
	"fmt"
	"slices"

	sdkresource "github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Resource is the plain count that pods request and that nodes publish.
const Resource types.ResourceName = "nvidia.com/gpu"

// The levels of a GPU's name, from the outermost to the innermost.
const (
	// Wide groups GPUs that are joined by any path: over a host bridge, inside a CPU, across CPUs.
	Wide = "gpugrp1"
	// Close groups GPUs that are joined closely: by NVLink, on one board, under PCIe switches.
	Close = "gpugrp0"
	// Level is that of the GPU itself.
	Level = "gpu"
)

// The resources of a GPU.
const (
	Cards  = "cards"
	Memory = "memory"
	// Cores are percent of the compute time, as HAMi counts it: AllCores for each GPU.
	Cores = "cores"
	// MemoryMillionths is a resource that containers request and that no GPU has: millionths of its
	// memory.
	MemoryMillionths = "memory-millionths"
)

// AllCores are the cores of a GPU.
const AllCores = 100

// GPU is one GPU of a node.
type GPU struct {
	// ID is unique on the node and contains no slash.
	ID string
	// Memory is in bytes; 0 for a GPU that has none of its own.
	Memory int64
	// Groups are the instances of the levels that the GPU is in, from the innermost to the
	// outermost: close, wide. A node whose topology is not known has none.
	Groups []int
	// Unhealthy GPUs count in the node's capacity and are not allocatable.
	Unhealthy bool
	// Partitioned GPUs are not allocatable and do not count: their instances do.
	Partitioned bool
	// Instances are those of a partitioned GPU.
	Instances []Instance
}

// Name returns what the names of the GPU's resources have in common, as in device.Health.
func (g GPU) Name() string {
	path := Level + "/" + g.ID
	for i, level := range []string{Close, Wide} {
		if i < len(g.Groups) {
			path = fmt.Sprintf("%s/%d/%s", level, g.Groups[i], path)
		}
	}
	return types.DeviceGroupPrefix + "/" + path
}

// InstanceName returns what the names of an instance's resources have in common.
func (g GPU) InstanceName(i Instance) string {
	return fmt.Sprintf("%s/%s/%d/%s/%s", g.Name(), InstanceLevel, i.GPUInstance, ComputeLevel, i.ID)
}

// Publish adds the GPUs and their instances to a node: each by its name, all GPUs as the count of
// the plain resource, and instances as that of their own.
func Publish(node *types.NodeInfo, resource types.ResourceName, gpus []GPU) {
	p := publication{node: node, counts: map[types.ResourceName]*count{resource: {}}}
	for _, g := range gpus {
		if !g.Partitioned {
			has := types.ResourceList{Cards: 1}
			if g.Memory > 0 {
				has[Memory], has[Cores] = g.Memory, AllCores
			}
			p.add(g.Name(), has, resource, !g.Unhealthy)
		}
		for _, i := range g.Instances {
			plain := resource
			if i.Resource != Cards {
				plain = PlainCount(i.Resource)
			}
			healthy := !g.Unhealthy && !i.Unhealthy
			p.add(g.InstanceName(i), types.ResourceList{types.ResourceName(i.Resource): 1}, plain, healthy)
		}
	}
	for plain, count := range p.counts {
		node.Capacity[plain], node.KubeCap[plain] = count.all, count.all
		node.Allocatable[plain], node.KubeAlloc[plain] = count.healthy, count.healthy
	}
}

// publication is a node to which devices are added.
type publication struct {
	node   *types.NodeInfo
	counts map[types.ResourceName]*count
}

type count struct{ all, healthy int64 }

// add adds a device of that name with its resources, and counts it.
func (p publication) add(name string, resources types.ResourceList, plain types.ResourceName, healthy bool) {
	if p.counts[plain] == nil {
		p.counts[plain] = &count{}
	}
	lists := []types.ResourceList{p.node.Capacity}
	p.counts[plain].all++
	if healthy {
		lists = append(lists, p.node.Allocatable)
		p.counts[plain].healthy++
	}
	for _, list := range lists {
		for resource, quantity := range resources {
			list[types.ResourceName(name+"/")+resource] = quantity
		}
	}
}

// Allocated returns the IDs of the GPUs that are allocated to the container, sorted.
func Allocated(container *types.ContainerInfo) []string {
	var ids []string
	for _, name := range container.AllocateFrom {
		if id, _, ok := Split(name); ok {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// Split returns the ID of the GPU in a device resource's name, and which of its resources it is. ok
// is false for the resources of other devices.
func Split(name types.ResourceName) (id, resource string, ok bool) {
	path, err := sdkresource.ParsePath(name)
	if err != nil || path.DeviceLevel() != Level {
		return "", "", false
	}
	return path.DeviceID(), path.Resource(), true
}
