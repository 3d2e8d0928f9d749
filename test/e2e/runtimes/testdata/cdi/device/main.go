// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// A device plugin with one device, which a CDI file describes.
package main

import (
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// memory is what the device has: a tebibyte, more than any other. To the scheduler it is a GPU, so
// that one of its plugins serves it.
const memory types.ResourceName = "resource/group/gpugrp1/widgets/gpugrp0/widgets/gpu/w0/memory"

type widget struct{}

var _ device.Allocator = widget{}

func (widget) GetName() string { return "widget" }
func (widget) New() error      { return nil }
func (widget) Start() error    { return nil }

func (widget) UpdateNodeInfo(node *types.NodeInfo) error {
	node.Capacity[memory], node.Allocatable[memory] = 1<<40, 1<<40
	return nil
}

// Allocate is for hosts that do not know AllocateContainer.
func (widget) Allocate(*types.PodInfo, *types.ContainerInfo) ([]device.Mount, []string, map[string]string, error) {
	return nil, nil, nil, nil
}

// AllocateContainer is what the host calls.
func (widget) AllocateContainer(_ *types.PodInfo, container *types.ContainerInfo) (*device.Allocation, error) {
	for _, resource := range container.AllocateFrom {
		if resource == memory {
			return &device.Allocation{CDIDevices: []string{"example.com/widget=w0"}}, nil
		}
	}
	return nil, nil
}

// CreateDevicePlugin is the entry point.
func CreateDevicePlugin() (device.Device, error) { return widget{}, nil }
