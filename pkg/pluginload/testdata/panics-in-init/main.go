// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// A plugin that panics while it is initialised.
package main

import (
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
)

func init() { panic("no licence\nfor this machine") }

// CreateDevicePlugin is the entry point.
func CreateDevicePlugin() (device.Device, error) { return nil, nil }
