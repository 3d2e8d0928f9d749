// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// A plugin without an entry point.
package main

import (
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
)

// CreateGadget is no name that a host looks for.
func CreateGadget() (device.Device, error) { return nil, nil }
