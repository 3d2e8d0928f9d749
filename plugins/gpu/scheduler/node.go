// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"

	"github.com/kubedevice/kubedevice/plugins/gpu"
)

// maxCounted is the largest number of GPUs that a node gets which only reports a count, and that
// the containers of a pod may count together.
const maxCounted = 1024

// liftNode rewrites what is allocatable on a node such that all its GPUs are in two levels of
// groups. A node that only reports a count gets that many GPUs, numbered from 0. The count in its
// status is one if its annotation has no other: that of a node whose devices are withdrawn says 0
// before its status does. A GPU whose close
// group is not known is in one of its own. GPUs of a node are in one wide group unless the node
// reports otherwise: some path joins them.
//
// A GPU's name depends on no other GPU, so that what a pod holds keeps its name when another GPU
// comes or goes.
func liftNode(node *types.NodeInfo, count types.ResourceName) {
	isListed := func(list types.ResourceList) bool {
		return slices.ContainsFunc(slices.Collect(maps.Keys(list)), isOurs)
	}
	if !isListed(node.Allocatable) && !isListed(node.Capacity) {
		number, allocatable := node.Allocatable[count]
		if _, listed := node.Capacity[count]; !allocatable && !listed {
			number = node.KubeAlloc[count]
		}
		for i := range min(number, maxCounted) {
			types.AddGroupResource(node.Allocatable, fmt.Sprintf("%s/%d/%s", gpu.Level, i, gpu.Cards), 1)
		}
	}
	for _, name := range slices.Collect(maps.Keys(node.Allocatable)) {
		if lifted := liftName(name); lifted != name {
			node.Allocatable[lifted] = node.Allocatable[name]
			delete(node.Allocatable, name)
		}
	}
}

// liftName returns the name with all levels above that of the device: an instance that is listed
// without its GPU is on one of its own. Names of other devices are their own.
func liftName(name types.ResourceName) types.ResourceName {
	path := strings.Split(string(name), "/")
	for i := len(levels) - 2; i >= 0; i-- {
		at := index(path, levels[i+1])
		if at < 0 || index(path, levels[i]) >= 0 {
			continue
		}
		instance := path[at+1]
		if levels[i] == gpu.Wide {
			instance = "0"
		}
		path = slices.Insert(path, at, levels[i], instance)
	}
	return types.ResourceName(strings.Join(path, "/"))
}

// isOurs reports whether a device resource is one of a GPU or an instance.
func isOurs(name types.ResourceName) bool {
	if _, _, ok := gpu.Split(name); ok {
		return true
	}
	_, ok := instanceResource(name)
	return ok
}

// topologyOf counts the node's GPUs by their groups. Only those with a card count: no container can
// have another one for itself.
func topologyOf(node *types.NodeInfo) topology { return unused(node, nil) }

// freeOf is topologyOf for the GPUs that are free.
func freeOf(node *types.NodeInfo) topology { return unused(node, node.Used) }

// unused counts the GPUs whose card is not in a list of used resources.
func unused(node *types.NodeInfo, used types.ResourceList) topology {
	sizes := map[string]map[string]int{}
	for name, quantity := range node.Allocatable {
		path, err := resource.ParsePath(name)
		if err != nil || path.DeviceLevel() != gpu.Level || path.Resource() != gpu.Cards || quantity-used[name] < 1 {
			continue
		}
		wide, _ := path.Instance(gpu.Wide)
		close, _ := path.Instance(gpu.Close)
		if sizes[wide] == nil {
			sizes[wide] = map[string]int{}
		}
		sizes[wide][close]++
	}
	var t topology
	for _, groups := range sizes {
		var wide group
		for _, size := range groups {
			wide = append(wide, size)
		}
		t = append(t, wide)
	}
	return t.canonical()
}

// countGPUs returns how many GPUs have a card in a list of a node's resources.
func countGPUs(list types.ResourceList) int64 {
	var n int64
	for name, quantity := range list {
		if _, resource, ok := gpu.Split(name); ok && resource == gpu.Cards && quantity > 0 {
			n++
		}
	}
	return n
}

// index returns the position of a level among the segments of a device resource's name, or -1.
func index(path []string, level string) int {
	if len(path) < 2 || path[0]+"/"+path[1] != types.DeviceGroupPrefix {
		return -1
	}
	for i := 2; i+2 < len(path); i += 2 {
		if path[i] == level {
			return i
		}
	}
	return -1
}
