// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// A plugin that ends the goroutine that creates it.
package main

import (
	"runtime"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
)

// CreateDevicePlugin is the entry point.
func CreateDevicePlugin() (device.Device, error) { runtime.Goexit(); return nil, nil }
