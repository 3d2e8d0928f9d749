// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// A scheduler plugin that panics when it is made.
package main

import "github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"

// CreateDeviceSchedulerPlugin is the entry point.
func CreateDeviceSchedulerPlugin() (devicescheduler.DeviceScheduler, error) { panic("no gadgets") }
