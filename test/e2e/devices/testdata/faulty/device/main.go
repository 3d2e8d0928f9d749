// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// A device plugin that has no devices.
package main

import (
	"errors"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

type faulty struct{}

var _ device.Device = faulty{}

// CreateDevicePlugin is the entry point.
func CreateDevicePlugin() (device.Device, error) { return faulty{}, nil }

func (faulty) GetName() string                      { return "faulty" }
func (faulty) New() error                           { return nil }
func (faulty) Start() error                         { return nil }
func (faulty) UpdateNodeInfo(*types.NodeInfo) error { return nil }

func (faulty) Allocate(*types.PodInfo, *types.ContainerInfo) ([]device.Mount, []string, map[string]string, error) {
	return nil, nil, nil, errors.New("there is nothing to allocate")
}
