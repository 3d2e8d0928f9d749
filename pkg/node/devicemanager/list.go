// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"cmp"
	"fmt"
	"slices"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// MaxDevices is the largest number of devices that one resource may have on a node.
const MaxDevices = 10_000

// entry is one device as its plugin last listed it.
type entry struct {
	kubeletdevice.Device
	name    types.ResourceName // on the node
	healthy bool
}

// readList returns the devices of a resource in the order of their IDs. The error says why the list
// cannot be used.
func readList(resource types.ResourceName, listed []*pluginapi.Device) ([]entry, error) {
	if len(listed) > MaxDevices {
		return nil, fmt.Errorf("it has %d devices, more than %d", len(listed), MaxDevices)
	}
	devices := make([]entry, 0, len(listed))
	seen := make(map[string]bool, len(listed))
	for i, item := range listed {
		id := item.GetID()
		if id == "" {
			return nil, fmt.Errorf("device %d of %d has an empty ID", i+1, len(listed))
		}
		if seen[id] {
			return nil, fmt.Errorf("device %.80q stands in it twice", id)
		}
		seen[id] = true
		d := kubeletdevice.Device{Resource: resource, ID: id}
		for _, node := range item.GetTopology().GetNodes() {
			d.NUMA = append(d.NUMA, int(node.GetID()))
		}
		e, err := newEntry(d)
		if err != nil {
			return nil, err
		}
		e.healthy = item.GetHealth() == pluginapi.Healthy
		devices = append(devices, e)
	}
	sortByID(devices)
	if _, err := deviceinfo.EncodeNode(infoOf(resource, devices, true)); err != nil {
		return nil, fmt.Errorf("its devices cannot be published: %w", err)
	}
	return devices, nil
}

// newEntry names the device.
func newEntry(d kubeletdevice.Device) (entry, error) {
	name, err := kubeletdevice.Name(d)
	if err != nil {
		return entry{}, err
	}
	// As in the name, so that another order of the NUMA nodes in a list is no change.
	d, _ = kubeletdevice.Parse(name)
	return entry{Device: d, name: name}, nil
}

func sortByID(devices []entry) {
	slices.SortFunc(devices, func(a, b entry) int { return cmp.Compare(a.ID, b.ID) })
}

func healthy(devices []entry) (count int) {
	for _, d := range devices {
		if d.healthy {
			count++
		}
	}
	return count
}

// infoOf returns what the node has of the resource: each device and, for Kubernetes, their number.
// If no plugin serves them, none is allocatable.
func infoOf(resource types.ResourceName, devices []entry, served bool) *types.NodeInfo {
	info := types.NewNodeInfo()
	info.KubeCap[resource], info.KubeAlloc[resource] = int64(len(devices)), 0
	for _, d := range devices {
		info.Capacity[d.name], info.Allocatable[d.name] = 1, 0
		if d.healthy && served {
			info.Allocatable[d.name] = 1
			info.KubeAlloc[resource]++
		}
	}
	return info
}

// equalLists reports whether two lists have the same devices with the same health.
func equalLists(a, b []entry) bool {
	return slices.EqualFunc(a, b, func(a, b entry) bool { return a.name == b.name && a.healthy == b.healthy })
}
