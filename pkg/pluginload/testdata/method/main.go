// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// A plugin without an entry point, but with a method of that name.
package main

import (
	"fmt"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
)

type factory struct{}

// CreateDevicePlugin is no function of package main.
func (factory) CreateDevicePlugin() (device.Device, error) { return nil, nil }

// Factory keeps the method in the file.
func Factory() { fmt.Println(any(factory{})) }
