// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// A plugin whose entry point is a variable.
package main

import (
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
)

// CreateDevicePlugin should be a function.
var CreateDevicePlugin = func() (device.Device, error) { return nil, nil }
