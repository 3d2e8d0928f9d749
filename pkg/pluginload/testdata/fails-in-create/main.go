// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// A plugin whose entry point returns an error.
package main

import (
	"errors"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
)

// CreateDevicePlugin is the entry point.
func CreateDevicePlugin() (device.Device, error) { return nil, errors.New("no widgets") }
