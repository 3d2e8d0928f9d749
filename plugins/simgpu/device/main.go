// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// The device side of simulated GPUs.
//
//	go build -buildmode=plugin -trimpath -o simgpu.so ./plugins/simgpu/device
package main

import (
	"cmp"
	"os"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"

	"github.com/kubedevice/kubedevice/plugins/simgpu/sim"
)

// configEnv names the configuration file, or is what it would have: {count: 8, topology: [2, 4]}
const configEnv = "KUBEDEVICE_SIMGPU_CONFIG"

// CreateDevicePlugin is the entry point.
func CreateDevicePlugin() (device.Device, error) {
	return sim.New(cmp.Or(os.Getenv(configEnv), sim.DefaultConfigFile)), nil
}

// main lets "go build ./..." link the package; a plugin is never run as a program.
func main() {}
