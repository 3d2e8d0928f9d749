// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// The device side of NVIDIA's GPUs.
//
//	go build -buildmode=plugin -trimpath -o nvidiagpu.so ./plugins/nvidiagpu/device
package main

import (
	"cmp"
	"os"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"

	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/node"
)

// configEnv names the configuration file.
const configEnv = "KUBEDEVICE_NVIDIAGPU_CONFIG"

// CreateDevicePlugin is the entry point.
func CreateDevicePlugin() (device.Device, error) {
	paths := node.DefaultPaths()
	paths.Config = cmp.Or(os.Getenv(configEnv), paths.Config)
	return node.New(paths), nil
}

// main lets "go build ./..." link the package; a plugin is never run as a program.
func main() {}
