// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

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

// deviceList is a list that a plugin has sent, as far as it counts.
type deviceList struct {
	devices []entry // in the order of their IDs; not nil
	remark  error   // what is odd in it and costs no device, or nil
}

// readList returns what counts of a list. The error says why none of it can be used. A device that
// can have no name on the node, because of its ID, is left out.
//
// As with the kubelet, a device whose ID is in the list several times, such as two functions of one
// IOMMU group, is one device. It is healthy if each of them is, and has the topology of the last.
func readList(resource types.ResourceName, listed []*pluginapi.Device) (deviceList, error) {
	list := deviceList{devices: make([]entry, 0, len(listed))}
	if len(listed) > MaxDevices {
		return list, fmt.Errorf("it has %d devices, more than %d", len(listed), MaxDevices)
	}
	seen := make(map[string]int, len(listed)) // where the device is in devices
	repeated, unnamed := remarks{}, remarks{}
	for _, item := range listed {
		id := item.GetID()
		d := kubeletdevice.Device{Resource: resource, ID: id}
		for _, node := range item.GetTopology().GetNodes() {
			d.NUMA = append(d.NUMA, int(node.GetID()))
		}
		e, err := newEntry(d)
		if err != nil {
			unnamed[err.Error()] = true
			continue
		}
		e.healthy = item.GetHealth() == pluginapi.Healthy
		if at, twice := seen[id]; twice {
			repeated[fmt.Sprintf("%.80q", id)] = true
			e.healthy = e.healthy && list.devices[at].healthy
			list.devices[at] = e
			continue
		}
		seen[id] = len(list.devices)
		list.devices = append(list.devices, e)
	}
	sortByID(list.devices)
	list.remark = errors.Join(
		repeated.remarkOn(resource, "lists devices more than once, and each of them counts as one"),
		unnamed.remarkOn(resource, "lists devices that cannot be offered"))
	return list, nil
}

// maxNamed is how many devices a remark names.
const maxNamed = 3

// remarks are what is to be said of devices of one kind, each once.
type remarks map[string]bool

// remarkOn returns the remark on a resource, or nil.
func (r remarks) remarkOn(resource types.ResourceName, what string) error {
	if len(r) == 0 {
		return nil
	}
	texts := slices.Sorted(maps.Keys(r))
	text := strings.Join(texts[:min(len(texts), maxNamed)], ", ")
	if more := len(texts) - maxNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Errorf("the device plugin of %s %s: %s", resource, what, text)
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
