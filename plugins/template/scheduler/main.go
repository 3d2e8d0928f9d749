// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// The scheduler plugin of the widget plugin: it runs inside kube-scheduler.
//
//	go build -buildmode=plugin -trimpath -o widget-scheduler.so ./scheduler
package main

import (
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"

	"example.com/widget/widget"
)

// CreateDeviceSchedulerPlugin is the entry point. kube-scheduler calls it once.
func CreateDeviceSchedulerPlugin() (devicescheduler.DeviceScheduler, error) {
	return scheduler{}, nil
}

// scheduler only says what a pod means; the group scheduler finds the widgets and keeps account of
// them. It has no state, so it is safe for concurrent use, and its answers depend on nothing but
// the arguments.
type scheduler struct{}

var (
	_ devicescheduler.DeviceScheduler = scheduler{}
	_ devicescheduler.DeviceCounter   = scheduler{}
)

func (scheduler) GetName() string           { return "widget" }
func (scheduler) UsingGroupScheduler() bool { return true }
func (scheduler) ConcurrentSafe() bool      { return true }
func (scheduler) Pure() bool                { return true }

// CountedDevices makes quotas hold for widgets that pods name in their annotation.
func (scheduler) CountedDevices() []devicescheduler.CountedDevice {
	return []devicescheduler.CountedDevice{{Plain: widget.Count, Level: widget.Level, Resource: widget.Cards}}
}

// AddNode may rewrite what the node gives. Ours give what the device plugin says.
func (scheduler) AddNode(string, *types.NodeInfo) {}
func (scheduler) RemoveNode(string)               {}

// PodFitsDevice is called for each node, with a copy of the pod for that node.
func (scheduler) PodFitsDevice(
	node *types.NodeInfo,
	pod *types.PodInfo,
	_ bool,
) (bool, []devicescheduler.PredicateFailureReason, float64) {
	if short := request(node, pod); short != nil {
		return false, []devicescheduler.PredicateFailureReason{short}, 0
	}
	return true, nil, 0
}

// PodAllocate is called once more for the node that was chosen.
func (scheduler) PodAllocate(node *types.NodeInfo, pod *types.PodInfo) error {
	if short := request(node, pod); short != nil {
		return short
	}
	return nil
}

// request adds the requests for widgets of all the pod's containers, unless one wants more than
// there can be.
func request(node *types.NodeInfo, pod *types.PodInfo) *resource.InsufficientResourceError {
	has := node.Allocatable[widget.Count]
	for _, containers := range []map[string]types.ContainerInfo{pod.InitContainers, pod.RunningContainers} {
		for name, container := range containers {
			if wants := container.KubeRequests[widget.Count]; wants > has {
				return resource.NewInsufficientResourceError(widget.Count, wants, node.Used[widget.Count], has)
			}
			widget.Request(node, &container)
			containers[name] = container
		}
	}
	return nil
}

// What a pod holds of the groups is the group scheduler's account.
func (scheduler) TakePodResources(*types.NodeInfo, *types.PodInfo) error   { return nil }
func (scheduler) ReturnPodResources(*types.NodeInfo, *types.PodInfo) error { return nil }

// main lets "go build ./..." link the package; a plugin is never run as a program.
func main() {}
