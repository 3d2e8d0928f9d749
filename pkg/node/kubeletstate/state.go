// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubeletstate reads the kubelet's own files: its checkpoint of device plugins, with the
// devices that containers were allocated, and that of resource claims. It writes none.
package kubeletstate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Dir is the directory in which device plugins register with the kubelet, and which has the
// kubelet's checkpoint. It does not depend on the kubelet's --root-dir.
const Dir = pluginapi.DevicePluginPath

// CheckpointName is the name of the file in [Dir] in which the kubelet remembers its device plugins
// and what they allocated.
const CheckpointName = "kubelet_internal_checkpoint"

// Path is the path of that file.
const Path = Dir + CheckpointName

// PlaceholderAnnotation is an annotation of each container that requests a resource for which
// kubecri is registered with the kubelet in the plugin's place. By it, and by nothing else, the
// kubelet's checkpoint distinguishes containers whose devices the scheduler chose from those whose
// devices a plugin allocated.
const PlaceholderAnnotation = "kubedevice.io/stand-in"

// placeholderID begins the IDs of the devices by which kubecri has the kubelet count a resource of
// plugin files, whose devices have other names.
const placeholderID = "kubecri-"

// PlaceholderID returns the ID of the device of number i by which kubecri has the kubelet count a
// resource of plugin files.
func PlaceholderID(i int) string { return placeholderID + strconv.Itoa(i) }

// IsPlaceholderID reports whether an ID is one of PlaceholderID.
func IsPlaceholderID(id string) bool {
	number, is := strings.CutPrefix(id, placeholderID)
	_, err := strconv.ParseUint(number, 10, 32)
	return is && err == nil
}

// State is the content of the kubelet's checkpoint of devices.
type State struct {
	// Resources are those of the device plugins that are registered with the kubelet, or were
	// within the last five minutes; sorted.
	Resources []types.ResourceName
	// Holdings are the devices of containers. The kubelet forgets those of a pod that is gone only
	// when it next allocates a device.
	Holdings []Holding
}

// Holding is what one container holds of one resource.
type Holding struct {
	PodUID    string
	Container string
	Resource  types.ResourceName
	IDs       []string // sorted
	// NUMA are the NUMA nodes of the devices, by ID; a device of none is not in it.
	NUMA map[string][]int
	// Placeholder says that kubecri has answered in the place of the plugin: the IDs mean nothing,
	// and the pod's allocation has the container's devices.
	Placeholder bool
	// Response is what the plugin answered, and the container gets; nil if it cannot be read.
	Response *pluginapi.ContainerAllocateResponse
}

// Remembers reports whether the kubelet knows the resource.
func (s State) Remembers(resource types.ResourceName) bool {
	return slices.Contains(s.Resources, resource) ||
		slices.ContainsFunc(s.Holdings, func(h Holding) bool { return h.Resource == resource })
}

// IsPlaceholder reports whether no plugin allocated one of the devices, but kubecri in its place.
func (s State) IsPlaceholder(resource types.ResourceName, ids []string) bool {
	byPlaceholder := func(placeholder bool, id string) bool {
		return slices.ContainsFunc(s.Holdings, func(h Holding) bool {
			return h.Resource == resource && h.Placeholder == placeholder && slices.Contains(h.IDs, id)
		})
	}
	return !slices.ContainsFunc(ids, func(id string) bool {
		return !IsPlaceholderID(id) && (byPlaceholder(false, id) || !byPlaceholder(true, id))
	})
}

// Allocated reports whether the kubelet allocated the device to the container, and not by a
// placeholder.
func (s State) Allocated(podUID, container string, device types.ResourceName) bool {
	d, ok := kubeletdevice.Parse(device)
	return ok && slices.ContainsFunc(s.Holdings, func(h Holding) bool {
		return h.PodUID == podUID && h.Container == container && h.Resource == d.Resource && !h.Placeholder &&
			slices.Contains(h.IDs, d.ID)
	})
}

// Read reads the kubelet's checkpoint at path. A missing file is an empty state.
func Read(path string) (State, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return State{}, nil
	}
	if err != nil {
		return State{}, fmt.Errorf("the kubelet's checkpoint: %w", err)
	}
	return decode(path, raw)
}

// decode decodes the content of the checkpoint at path.
func decode(path string, raw []byte) (State, error) {
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
		return State{}, fmt.Errorf("the kubelet's checkpoint: %s: %w", path, err)
	}
	state := State{Resources: slices.Sorted(maps.Keys(content.Data.RegisteredDevices))}
	for _, entry := range content.Data.PodDeviceEntries {
		response := responseOf(entry.AllocResp)
		holding := Holding{
			PodUID: entry.PodUID, Container: entry.ContainerName, Resource: entry.ResourceName,
			NUMA: map[string][]int{}, Response: response,
			Placeholder: response.GetAnnotations()[PlaceholderAnnotation] != "",
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
