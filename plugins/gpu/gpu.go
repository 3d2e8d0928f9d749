// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gpu holds what the GPU plugins share: the names of GPUs in a node's inventory and in a
// container's allocation.
//
// A GPU is in two levels of groups, and has two resources:
//
//	resource/group/gpugrp1/<wide>/gpugrp0/<close>/gpu/<id>/cards  = 1
//	resource/group/gpugrp1/<wide>/gpugrp0/<close>/gpu/<id>/memory = bytes
//
// A container that holds the card has the GPU for itself; one that holds only memory shares it.
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
)

// GPU is one GPU of a node.
type GPU struct {
	// ID is unique on the node and contains no slash.
	ID string
	// Memory is in bytes.
	Memory int64
	// Groups are the instances of the levels that the GPU is in, from the innermost to the
	// outermost: close, wide. A node whose topology is not known has none.
	Groups []int
	// Unhealthy GPUs count in the node's capacity and are not allocatable.
	Unhealthy bool
}

// name returns the name of one of the GPU's resources.
func (g GPU) name(resource string) types.ResourceName {
	return types.ResourceName(g.Name() + "/" + resource)
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

// Publish adds the GPUs to a node: each by its name, and all as the count of the plain resource.
func Publish(node *types.NodeInfo, resource types.ResourceName, gpus []GPU) {
	var healthy int64
	for _, g := range gpus {
		lists := []types.ResourceList{node.Capacity}
		if !g.Unhealthy {
			lists = append(lists, node.Allocatable)
			healthy++
		}
		for _, list := range lists {
			list[g.name(Cards)] = 1
			list[g.name(Memory)] = g.Memory
		}
	}
	node.Capacity[resource], node.KubeCap[resource] = int64(len(gpus)), int64(len(gpus))
	node.Allocatable[resource], node.KubeAlloc[resource] = healthy, healthy
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
