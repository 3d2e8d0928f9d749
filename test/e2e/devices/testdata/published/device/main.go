// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// A device plugin in the pattern of those that were written for the published KubeDevice: it writes
// into the maps of its arguments without a check for nil. The node has four
// chips in two pairs, which exist by name alone.
package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

const (
	chips types.ResourceName = "example.com/chip"
	count                    = 4
)

type chipDevice struct{}

var _ device.Device = chipDevice{}

// CreateDevicePlugin is the entry point.
func CreateDevicePlugin() (device.Device, error) { return chipDevice{}, nil }

func (chipDevice) GetName() string { return "published" }
func (chipDevice) New() error      { return nil }
func (chipDevice) Start() error    { return nil }

func (chipDevice) UpdateNodeInfo(node *types.NodeInfo) error {
	for _, list := range []types.ResourceList{node.Capacity, node.Allocatable} {
		for i := range count {
			types.AddGroupResource(list, fmt.Sprintf("pair/%d/chip/chip-%d/cards", i/2, i), 1)
		}
		list[chips] = count
	}
	node.KubeCap[chips], node.KubeAlloc[chips] = count, count
	return nil
}

// Allocate returns CHIPS, the container's chips with commas between them.
func (chipDevice) Allocate(pod *types.PodInfo,
	container *types.ContainerInfo) ([]device.Mount, []string, map[string]string, error) {
	var ids []string
	for request, from := range container.AllocateFrom {
		segments := strings.Split(string(from), "/")
		container.Requests[request] = 1
		if len(segments) == 7 && segments[4] == "chip" {
			ids = append(ids, segments[5])
		}
	}
	pod.Requests[chips] += int64(len(ids))
	slices.Sort(ids)
	return nil, nil, map[string]string{"CHIPS": strings.Join(ids, ",")}, nil
}
