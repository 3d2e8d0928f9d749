// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// A plugin that panics in its entry point.
package main

import (
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
)

// CreateDevicePlugin is the entry point.
func CreateDevicePlugin() (device.Device, error) { panic("no widgets") }
