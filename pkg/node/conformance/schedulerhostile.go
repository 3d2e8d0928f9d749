// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// manyContainers is more than the hosts let a pod have.
const manyContainers = 500

// hostilePods returns pods that strangers may write, for a node that counts these resources and has
// a device resource of that name.
func hostilePods(plains []types.ResourceName, own types.ResourceName) []sample {
	var list []sample
	add := func(what string, change func(pod *types.PodInfo, container *types.ContainerInfo)) {
		container := types.NewContainerInfo()
		pod := podOf(container)
		change(pod, container)
		if _, kept := pod.RunningContainers["main"]; kept {
			pod.RunningContainers["main"] = *container
		}
		list = append(list, sample{what: what, pod: pod})
	}
	giant := []int64{0, -1, math.MaxInt64, math.MinInt64}
	for _, quantity := range giant {
		for _, plain := range plains {
			add(fmt.Sprintf("%d of %s", quantity, plain), func(_ *types.PodInfo, c *types.ContainerInfo) {
				c.KubeRequests[plain], c.Requests[plain] = quantity, quantity
			})
			add(fmt.Sprintf("%d of %s in the annotation of the pod", quantity, plain),
				func(pod *types.PodInfo, c *types.ContainerInfo) {
					pod.Requests[plain] = quantity
					c.KubeRequests[plain] = 1
				})
		}
		add(fmt.Sprintf("%d of %s", quantity, own), func(_ *types.PodInfo, c *types.ContainerInfo) {
			c.Requests[own] = quantity
			c.Scorer[own] = int32(quantity)
		})
	}
	names := oddNames(own)
	for _, name := range names {
		add(fmt.Sprintf("%.60q", name), func(pod *types.PodInfo, c *types.ContainerInfo) {
			c.Requests[name], pod.Requests[name] = 1, 1
		})
		add(fmt.Sprintf("something as a pod called %.60q", name), func(pod *types.PodInfo, c *types.ContainerInfo) {
			pod.Name = string(name)
			pod.InitContainers[string(name)] = *c.Clone()
			for _, plain := range plains {
				c.KubeRequests[plain] = 1
			}
		})
	}
	add("all odd names at once", func(_ *types.PodInfo, c *types.ContainerInfo) {
		for _, name := range names {
			c.Requests[name], c.KubeRequests[name] = math.MaxInt64, math.MaxInt64
		}
	})
	add("devices in very many containers", func(pod *types.PodInfo, _ *types.ContainerInfo) {
		for i := range manyContainers {
			container := types.NewContainerInfo()
			for _, plain := range plains {
				container.KubeRequests[plain] = 1
			}
			container.Requests[types.ResourceName(fmt.Sprintf("a/%d/b", i))] = 1
			pod.RunningContainers[fmt.Sprintf("container-%d", i)] = *container
		}
	})
	add("nothing, without any container", func(pod *types.PodInfo, _ *types.ContainerInfo) {
		clear(pod.RunningContainers)
	})
	return list
}

// hostileNodes returns nodes that are not as they should be.
func hostileNodes(node *types.NodeInfo, own types.ResourceName) map[string]*types.NodeInfo {
	odd, negative, giant := node.Clone(), node.Clone(), node.Clone()
	for _, name := range oddNames(own) {
		for _, list := range []types.ResourceList{odd.Capacity, odd.Allocatable, odd.Used, odd.KubeCap, odd.KubeAlloc} {
			list[name] = 1
		}
	}
	for name := range node.Allocatable {
		negative.Allocatable[name], negative.Used[name], negative.KubeAlloc[name] = -1, -1, -1
		giant.Allocatable[name], giant.Used[name], giant.KubeAlloc[name] = math.MaxInt64, math.MaxInt64, math.MaxInt64
	}
	named := node.Clone()
	named.Name = strings.Repeat("ü/", 1000)
	return map[string]*types.NodeInfo{
		"without devices": types.NewNodeInfoWithName("node-without-devices"), "without a name": types.NewNodeInfo(),
		"with odd names": odd, "with negative quantities": negative, "with giant quantities": giant,
		"with an odd name of its own": named,
	}
}

func (h *schedulerPlugin) checkHostile() error {
	return h.withNode(func(node *types.NodeInfo) error {
		list, allocated, err := h.served(node)
		if err != nil {
			return err
		}
		own := ownResource(node)
		pods := hostilePods(h.plains(), own)
		for _, s := range pods {
			if err := h.survive(node, s.pod); err != nil {
				return fmt.Errorf("for a pod that requests %s, %w", brief(s.what), err)
			}
		}
		nodes := hostileNodes(h.node, own)
		for _, what := range slices.Sorted(maps.Keys(nodes)) {
			other := nodes[what]
			left, err := h.add(other)
			if err == nil {
				err = h.survive(left, list[0].pod)
			}
			if err == nil {
				err = h.survive(left, allocated[0])
			}
			if err == nil {
				err = h.call("RemoveNode", func() error { h.plugin.RemoveNode(other.Name); return nil })
			}
			if err != nil {
				return fmt.Errorf("for a node %s, %w", what, err)
			}
		}
		if _, err := h.add(h.node); err != nil { // one of them had its name
			return err
		}
		after, why, err := h.place(node, list[0].pod)
		if err != nil || why != "" {
			return fmt.Errorf("after that, a pod that requests %s no longer fits: %s (%v)", list[0].what, why, err)
		}
		return sameRequests(allocated[0], after)
	})
}

// ownResource returns the name of a device resource of the node.
func ownResource(node *types.NodeInfo) types.ResourceName {
	for _, one := range devices(node) {
		return one.ownName()
	}
	return "resource/group/device/0/units"
}

// survive makes all calls for a pod. The error is that of a call that the plugin did not answer.
func (h *schedulerPlugin) survive(node *types.NodeInfo, pod *types.PodInfo) error {
	if _, err := h.fits(node, pod); err != nil {
		return err
	}
	if _, err := h.allocate(node, pod); err != nil && !isRefusal(err) {
		return err
	}
	holding := pod.Clone()
	for _, containers := range []map[string]types.ContainerInfo{holding.InitContainers, holding.RunningContainers} {
		for _, container := range containers {
			for name, quantity := range container.Requests {
				container.DevRequests[name], container.AllocateFrom[name] = quantity, name
			}
		}
	}
	state := node.Clone()
	if err := h.take(state, holding); err != nil && !isRefusal(err) {
		return err
	}
	if err := h.giveBack(state, holding); err != nil && !isRefusal(err) {
		return err
	}
	return nil
}
