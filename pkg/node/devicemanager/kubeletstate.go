// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"

	"google.golang.org/protobuf/proto"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// KubeletState is what the kubelet's checkpoint of devices says.
type KubeletState struct {
	// Resources are those of the device plugins that are registered with the kubelet, or were
	// within the last five minutes; sorted.
	Resources []types.ResourceName
	// Holdings are the devices of containers. The kubelet forgets those of a pod that is gone only
	// when it next allocates a device.
	Holdings []KubeletHolding
}

// KubeletHolding is what one container holds of one resource.
type KubeletHolding struct {
	PodUID    string
	Container string
	Resource  types.ResourceName
	IDs       []string // sorted
	// NUMA are the NUMA nodes of the devices, by ID; a device of none is not in it.
	NUMA map[string][]int
	// StandIn says that kubecri has answered in the place of the plugin: the IDs mean nothing, and
	// what the container has says its pod's allocation.
	StandIn bool
	// Response is what the plugin answered, and the container gets; nil if it cannot be read.
	Response *pluginapi.ContainerAllocateResponse
}

// remembers reports whether the kubelet knows the resource.
func (s KubeletState) remembers(resource types.ResourceName) bool {
	return slices.Contains(s.Resources, resource) ||
		slices.ContainsFunc(s.Holdings, func(h KubeletHolding) bool { return h.Resource == resource })
}

// Gives reports whether the kubelet gave the device to the container, and not by a stand-in.
func (s KubeletState) Gives(podUID, container string, device types.ResourceName) bool {
	d, ok := kubeletdevice.Parse(device)
	return ok && slices.ContainsFunc(s.Holdings, func(h KubeletHolding) bool {
		return h.PodUID == podUID && h.Container == container && h.Resource == d.Resource && !h.StandIn &&
			slices.Contains(h.IDs, d.ID)
	})
}

// ReadKubeletState reads the kubelet's checkpoint at path. A file that is not there says nothing.
func ReadKubeletState(path string) (KubeletState, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return KubeletState{}, nil
	}
	if err != nil {
		return KubeletState{}, fmt.Errorf("the kubelet's checkpoint: %w", err)
	}
	var content struct {
		Data struct {
			RegisteredDevices map[types.ResourceName]any
			PodDeviceEntries  []struct {
				PodUID, ContainerName string
				ResourceName          types.ResourceName
				DeviceIDs             map[int][]string // by NUMA node, -1 for none
				AllocResp             []byte
			}
		}
	}
	if err := json.Unmarshal(raw, &content); err != nil {
		return KubeletState{}, fmt.Errorf("the kubelet's checkpoint: %s: %w", path, err)
	}
	state := KubeletState{Resources: slices.Sorted(maps.Keys(content.Data.RegisteredDevices))}
	for _, entry := range content.Data.PodDeviceEntries {
		response := responseOf(entry.AllocResp)
		holding := KubeletHolding{
			PodUID: entry.PodUID, Container: entry.ContainerName, Resource: entry.ResourceName,
			NUMA: map[string][]int{}, StandIn: isStandIns(response), Response: response,
		}
		for _, node := range slices.Sorted(maps.Keys(entry.DeviceIDs)) {
			for _, id := range entry.DeviceIDs[node] {
				holding.IDs = append(holding.IDs, id)
				if node >= 0 {
					holding.NUMA[id] = append(holding.NUMA[id], node)
				}
			}
		}
		slices.Sort(holding.IDs)
		holding.IDs = slices.Compact(holding.IDs) // a device on two NUMA nodes stands in it twice
		state.Holdings = append(state.Holdings, holding)
	}
	return state, nil
}

// responseOf returns the response of a plugin as the kubelet keeps it, or nil.
func responseOf(raw []byte) *pluginapi.ContainerAllocateResponse {
	response := &pluginapi.ContainerAllocateResponse{}
	if len(raw) == 0 || proto.Unmarshal(raw, response) != nil {
		return nil
	}
	return response
}
