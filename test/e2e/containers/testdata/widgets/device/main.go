// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// A device plugin of a vendor that kubecri does not know, which says what the vendor's container
// runtime obeys. It offers a card of Xilinx's, too.
package main

import (
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// cards is a resource of Xilinx's device plugin.
const cards types.ResourceName = "amd.com/xilinx_u55c_gen3x16_xdma_base_3-0"

type widgets struct{}

var _ device.Firewalled = widgets{}

// CreateDevicePlugin is the entry point.
func CreateDevicePlugin() (device.Device, error) { return widgets{}, nil }

func (widgets) GetName() string { return "widgets" }
func (widgets) New() error      { return nil }
func (widgets) Start() error    { return nil }

func (widgets) UpdateNodeInfo(node *types.NodeInfo) error {
	for _, list := range []types.ResourceList{node.Capacity, node.Allocatable, node.KubeCap, node.KubeAlloc} {
		list[cards] = 1
	}
	return nil
}

func (widgets) Allocate(*types.PodInfo, *types.ContainerInfo) ([]device.Mount, []string, map[string]string, error) {
	return nil, nil, nil, nil
}

func (widgets) Firewall() device.Firewall {
	return device.Firewall{
		Envs:      map[string]string{"WIDGET_VISIBLE_DEVICES": "none"},
		Variables: []device.FirewallVariable{{Name: "WIDGET_CARDS_*", Nothing: "none", Takes: "first"}},
	}
}
