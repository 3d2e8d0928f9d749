// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// A plugin that ends the process while it is initialised.
package main

import (
	"log"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
)

func init() { log.Fatal("no widgets on this machine") }

// CreateDevicePlugin is the entry point.
func CreateDevicePlugin() (device.Device, error) { return nil, nil }
