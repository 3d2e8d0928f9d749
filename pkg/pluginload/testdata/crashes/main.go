// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// A plugin that brings the process down by a panic in a goroutine of its own.
package main

import (
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
)

func init() {
	go func() { panic("lost in a goroutine") }()
	select {}
}

// CreateDevicePlugin is the entry point.
func CreateDevicePlugin() (device.Device, error) { return nil, nil }
