// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// A scheduler plugin with two faults: it panics for pods that request hazard/panic, and ends its
// process, by a panic in a goroutine of its own, for those that request hazard/crash.
package main

import (
	"fmt"

	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

type hazard struct{}

var _ devicescheduler.DeviceScheduler = hazard{}

// CreateDeviceSchedulerPlugin is the entry point.
func CreateDeviceSchedulerPlugin() (devicescheduler.DeviceScheduler, error) { return hazard{}, nil }

func (hazard) GetName() string                                          { return "hazard" }
func (hazard) UsingGroupScheduler() bool                                { return false }
func (hazard) AddNode(string, *types.NodeInfo)                          {}
func (hazard) RemoveNode(string)                                        {}
func (hazard) TakePodResources(*types.NodeInfo, *types.PodInfo) error   { return nil }
func (hazard) ReturnPodResources(*types.NodeInfo, *types.PodInfo) error { return nil }
func (hazard) PodAllocate(*types.NodeInfo, *types.PodInfo) error        { return nil }

func (hazard) PodFitsDevice(_ *types.NodeInfo, pod *types.PodInfo,
	_ bool) (bool, []devicescheduler.PredicateFailureReason, float64) {
	for _, container := range pod.RunningContainers {
		if quantity, ok := container.Requests["hazard/panic"]; ok {
			panic(fmt.Sprintf("no recipe for %d", quantity))
		}
		if quantity, ok := container.Requests["hazard/crash"]; ok {
			go panic(fmt.Sprintf("no recipe for %d, in a goroutine of its own", quantity))
			select {}
		}
	}
	return true, nil, 0
}
