// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// A scheduler plugin that passes requests for parts on to the group scheduler as they are.
package main

import (
	"strings"

	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

type parts struct{}

var _ devicescheduler.DeviceScheduler = parts{}

// CreateDeviceSchedulerPlugin is the entry point.
func CreateDeviceSchedulerPlugin() (devicescheduler.DeviceScheduler, error) { return parts{}, nil }

func (parts) GetName() string                                          { return "parts" }
func (parts) UsingGroupScheduler() bool                                { return true }
func (parts) AddNode(string, *types.NodeInfo)                          {}
func (parts) RemoveNode(string)                                        {}
func (parts) TakePodResources(*types.NodeInfo, *types.PodInfo) error   { return nil }
func (parts) ReturnPodResources(*types.NodeInfo, *types.PodInfo) error { return nil }

func (parts) PodFitsDevice(_ *types.NodeInfo, pod *types.PodInfo,
	_ bool) (bool, []devicescheduler.PredicateFailureReason, float64) {
	request(pod)
	return true, nil, 0
}

func (parts) PodAllocate(_ *types.NodeInfo, pod *types.PodInfo) error {
	request(pod)
	return nil
}

func request(pod *types.PodInfo) {
	for name, container := range pod.RunningContainers {
		types.FillContainerInfo(&container)
		for request, quantity := range container.Requests {
			if strings.HasPrefix(string(request), "resource/group/part/") {
				container.DevRequests[request] = quantity
			}
		}
		pod.RunningContainers[name] = container
	}
}
