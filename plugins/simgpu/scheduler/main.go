// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// The scheduler side of simulated GPUs: that of all GPUs, under the name of the count that the
// nodes publish.
//
//	go build -buildmode=plugin -trimpath -o simgpu.so ./plugins/simgpu/scheduler
package main

import (
	"os"

	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"

	"github.com/kubedevice/kubedevice/plugins/gpu"
	"github.com/kubedevice/kubedevice/plugins/gpu/scheduler"
)

// resourceEnv names the count, for nodes whose configuration gives it another name.
const resourceEnv = "KUBEDEVICE_SIMGPU_RESOURCE"

// CreateDeviceSchedulerPlugin is the entry point.
func CreateDeviceSchedulerPlugin() (devicescheduler.DeviceScheduler, error) {
	resource := gpu.Resource
	if name := os.Getenv(resourceEnv); name != "" {
		resource = types.ResourceName(name)
	}
	return scheduler.New("simgpu", resource), nil
}

// main lets "go build ./..." link the package; a plugin is never run as a program.
func main() {}
