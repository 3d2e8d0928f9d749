// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// A scheduler plugin that is called for all pods with devices, has nothing to do with them, and
// panics for those whose annotation requests that.
package main

import (
	"fmt"

	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

type faulty struct{}

var _ devicescheduler.DeviceScheduler = faulty{}

// CreateDeviceSchedulerPlugin is the entry point.
func CreateDeviceSchedulerPlugin() (devicescheduler.DeviceScheduler, error) { return faulty{}, nil }

func (faulty) GetName() string                                          { return "faulty" }
func (faulty) UsingGroupScheduler() bool                                { return false }
func (faulty) AddNode(string, *types.NodeInfo)                          {}
func (faulty) RemoveNode(string)                                        {}
func (faulty) TakePodResources(*types.NodeInfo, *types.PodInfo) error   { return nil }
func (faulty) ReturnPodResources(*types.NodeInfo, *types.PodInfo) error { return nil }
func (faulty) PodAllocate(*types.NodeInfo, *types.PodInfo) error        { return nil }

func (faulty) PodFitsDevice(_ *types.NodeInfo, pod *types.PodInfo,
	_ bool) (bool, []devicescheduler.PredicateFailureReason, float64) {
	for _, container := range pod.RunningContainers {
		if quantity, ok := container.Requests["faulty/panic"]; ok {
			panic(fmt.Sprintf("no recipe for %d", quantity))
		}
	}
	return true, nil, 0
}
