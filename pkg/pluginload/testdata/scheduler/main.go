// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// A scheduler plugin that works.
package main

import "github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"

type scheduler struct {
	devicescheduler.DeviceScheduler
}

func (scheduler) GetName() string { return "gadgets" }

// CreateDeviceSchedulerPlugin is the entry point.
func CreateDeviceSchedulerPlugin() (devicescheduler.DeviceScheduler, error) { return scheduler{}, nil }
