// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// A plugin whose entry point has another type.
package main

import (
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
)

// CreateDevicePlugin lacks the error.
func CreateDevicePlugin() device.Device { return nil }
