// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// A plugin whose New returns an error.
package main

import (
	"errors"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
)

type gadget struct{ device.Device }

func (gadget) GetName() string { return "gadget" }
func (gadget) New() error      { return errors.New("no widgets") }

// CreateDevicePlugin is the entry point.
func CreateDevicePlugin() (device.Device, error) { return gadget{}, nil }
