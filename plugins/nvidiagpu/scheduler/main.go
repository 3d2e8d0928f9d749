// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// The scheduler side of NVIDIA's GPUs.
//
//	go build -buildmode=plugin -trimpath -o nvidiagpu.so ./plugins/nvidiagpu/scheduler
package main

import (
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"

	"github.com/kubedevice/kubedevice/plugins/gpu"
	"github.com/kubedevice/kubedevice/plugins/gpu/scheduler"
)

// CreateDeviceSchedulerPlugin is the entry point.
func CreateDeviceSchedulerPlugin() (devicescheduler.DeviceScheduler, error) {
	return scheduler.New("nvidiagpu", gpu.Resource), nil
}

// main lets "go build ./..." link the package; a plugin is never run as a program.
func main() {}
