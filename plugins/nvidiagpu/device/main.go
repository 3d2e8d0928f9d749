// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// The device side of NVIDIA's GPUs.
//
//	go build -buildmode=plugin -trimpath -o nvidiagpu.so ./plugins/nvidiagpu/device
package main

import (
	"github.com/kubedevice/kubedevice/pkg/sdk/device"

	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/node"
	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/nvml"
)

// CreateDevicePlugin is the entry point.
func CreateDevicePlugin() (device.Device, error) {
	return node.New(nvml.DefaultLibrary, node.DefaultFaultsFile), nil
}

// main lets "go build ./..." link the package; a plugin is never run as a program.
func main() {}
