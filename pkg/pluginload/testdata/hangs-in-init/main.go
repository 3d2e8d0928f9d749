// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// A plugin whose initialisation never ends.
package main

import (
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
)

func init() { select {} }

// CreateDevicePlugin is the entry point.
func CreateDevicePlugin() (device.Device, error) { return nil, nil }
