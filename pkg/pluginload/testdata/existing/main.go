// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// A pair of plugins in one file, as they were written against the published SDK. A build changes
// nothing but the import prefix.
package main

import (
	"fmt"
	"path"

	"github.com/Microsoft/KubeDevice-API/pkg/device"
	"github.com/Microsoft/KubeDevice-API/pkg/devicescheduler"
	"github.com/Microsoft/KubeDevice-API/pkg/kdlog"
	"github.com/Microsoft/KubeDevice-API/pkg/resource"
	"github.com/Microsoft/KubeDevice-API/pkg/types"
	"github.com/Microsoft/KubeDevice-API/pkg/utils"
)

const count = types.ResourceName("example.com/gadget")

type gadgetScheduler struct{ nodes map[string]*types.NodeInfo }

func (s *gadgetScheduler) AddNode(nodeName string, nodeInfo *types.NodeInfo) {
	for name, value := range nodeInfo.Allocatable {
		if !resource.PrecheckedResource(name) && !resource.IsEnumResource(name) {
			resource.AddGroupResource(nodeInfo.Used, "gadget/"+path.Base(string(name)), value)
		}
	}
	utils.AssignMap(s.nodes, []string{nodeName}, nodeInfo.Clone())
	if utils.Logb(4) {
		utils.Logf(4, "nodes: %v", utils.SortedStringKeys(s.nodes))
	}
	kdlog.V(4).Infof("added %s", nodeName)
}

func (s *gadgetScheduler) RemoveNode(nodeName string) { delete(s.nodes, nodeName) }

func (s *gadgetScheduler) PodFitsDevice(
	nodeInfo *types.NodeInfo,
	podInfo *types.PodInfo,
	fillAllocateFrom bool,
) (bool, []devicescheduler.PredicateFailureReason, float64) {
	var requested int64
	for name, container := range podInfo.RunningContainers {
		modified, requests := resource.TranslateResource(nodeInfo.Allocatable, container.Requests, "board", "gadget")
		if modified {
			container.DevRequests = requests
			podInfo.RunningContainers[name] = container
		}
		requested += podInfo.GetContainerInPod(name).KubeRequests[count]
	}
	if free := nodeInfo.Allocatable[count] - nodeInfo.Used[count]; requested > free {
		return false, []devicescheduler.PredicateFailureReason{
			resource.NewInsufficientResourceError(count, requested, nodeInfo.Used[count], nodeInfo.Allocatable[count]),
		}, 0
	}
	return true, nil, 1
}

func (s *gadgetScheduler) PodAllocate(nodeInfo *types.NodeInfo, podInfo *types.PodInfo) error {
	for name, container := range podInfo.InitContainers {
		types.FillContainerInfo(&container)
		container.AllocateFrom[count] = count
		podInfo.InitContainers[name] = container
	}
	return nil
}

func (s *gadgetScheduler) TakePodResources(*types.NodeInfo, *types.PodInfo) error   { return nil }
func (s *gadgetScheduler) ReturnPodResources(*types.NodeInfo, *types.PodInfo) error { return nil }
func (s *gadgetScheduler) GetName() string                                          { return "gadgets" }
func (s *gadgetScheduler) UsingGroupScheduler() bool                                { return true }

func CreateDeviceSchedulerPlugin() (devicescheduler.DeviceScheduler, error) {
	return &gadgetScheduler{nodes: map[string]*types.NodeInfo{}}, nil
}

type gadget struct{ found types.ResourceList }

func (g *gadget) New() error {
	g.found = types.ResourceList{}
	return nil
}

func (g *gadget) Start() error {
	g.found[count] = 1
	return nil
}

func (g *gadget) UpdateNodeInfo(nodeInfo *types.NodeInfo) error {
	if utils.CompareNode(nodeInfo, types.NewNodeInfoWithName(nodeInfo.Name)) {
		utils.Warningf("%s is empty", nodeInfo.Name)
	}
	nodeInfo.Capacity[count] = g.found[count]
	nodeInfo.Allocatable[count] = g.found[count]
	types.AddGroupResource(nodeInfo.Allocatable, "gadget/0/cards", 1)
	return nil
}

func (g *gadget) Allocate(
	podInfo *types.PodInfo,
	container *types.ContainerInfo,
) ([]device.Mount, []string, map[string]string, error) {
	if len(container.AllocateFrom) == 0 {
		utils.Errorf("nothing allocated to %s", podInfo.Name)
		return nil, nil, nil, fmt.Errorf("nothing allocated to %s", podInfo.Name)
	}
	return []device.Mount{
			{ContainerPath: "/gadget", HostPath: "/gadget", Readonly: true},
		}, []string{
			"/dev/gadget",
		}, map[string]string{
			"GADGET": "0",
		}, nil
}

func (g *gadget) GetName() string { return "gadgets" }

func CreateDevicePlugin() (device.Device, error) { return &gadget{}, nil }
