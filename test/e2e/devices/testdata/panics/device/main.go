// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// A device plugin that panics in New.
package main

import "github.com/kubedevice/kubedevice/pkg/sdk/device"

type gadget struct{ device.Device }

func (gadget) GetName() string { return "gadget" }
func (gadget) New() error      { panic("no gadgets") }

// CreateDevicePlugin is the entry point.
func CreateDevicePlugin() (device.Device, error) { return gadget{}, nil }
