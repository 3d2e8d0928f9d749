// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// A device plugin that works.
package main

import (
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

type gadget struct{ ready bool }

func (g *gadget) New() error                           { g.ready = true; return nil }
func (g *gadget) Start() error                         { return nil }
func (g *gadget) UpdateNodeInfo(*types.NodeInfo) error { return nil }
func (g *gadget) GetName() string                      { return "gadget" }

func (g *gadget) Allocate(*types.PodInfo, *types.ContainerInfo) ([]device.Mount, []string, map[string]string, error) {
	if !g.ready {
		panic("New was not called")
	}
	return nil, []string{"/dev/gadget0"}, nil, nil
}

// CreateDevicePlugin is the entry point.
func CreateDevicePlugin() (device.Device, error) { return &gadget{}, nil }
