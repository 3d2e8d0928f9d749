// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"cmp"
	"iter"
	"slices"
	"strconv"
	"strings"

	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
	alphaapi "k8s.io/kubelet/pkg/apis/podresources/v1alpha1"

	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Devices are the current devices of this node.
type Devices struct {
	// Allocatable is the allocatable quantity of each resource. It is immutable.
	Allocatable types.ResourceList
	Names       Names
	// Kubelet is the node's kubelet; nil if it counts no devices that kubecri allocates.
	Kubelet Kubelet
}

// Names knows the names of device resources. *plugins.Inventory implements it.
type Names interface {
	// ExtendedOf returns the extended resource under which the plugin of a device resource
	// publishes the device.
	ExtendedOf(name types.ResourceName) (extended types.ResourceName, known bool)
}

// Kubelet is the node's kubelet. *devicemanager.Manager implements it.
type Kubelet interface {
	// KubeletCounts reports whether the kubelet's own entries of an extended resource have no
	// meaning, because kubecri allocates the devices that the kubelet counts.
	KubeletCounts(extended types.ResourceName) bool
}

// Device is a device as the API names it.
type Device struct {
	// Resource is the extended resource, ID the plugin's own name for the device.
	Resource, ID string
	// NUMA are its NUMA nodes; empty means that they are not known.
	NUMA []int
}

// replaces reports whether the answer omits the kubelet's entries of the extended resource.
func (d Devices) replaces(extended string) bool {
	return d.Kubelet != nil && d.Kubelet.KubeletCounts(types.ResourceName(extended))
}

// Healthy returns the allocatable devices, by resource and ID.
func (d Devices) Healthy() []Device {
	return d.ForResources(func(yield func(types.ResourceName) bool) {
		for name, quantity := range d.Allocatable {
			if quantity > 0 && !yield(name) {
				return
			}
		}
	})
}

// ForResources returns the devices of the resources, each once, by resource and ID. It omits
// devices for which the API has no name.
func (d Devices) ForResources(names iter.Seq[types.ResourceName]) []Device {
	var devices []Device
	seen := map[string]bool{}
	for name := range names {
		path, err := resource.ParsePath(name)
		if err != nil || path.Depth() == 0 || seen[path.Device()] {
			continue
		}
		seen[path.Device()] = true
		if named, ok := d.name(path); ok {
			devices = append(devices, named)
		}
	}
	slices.SortFunc(devices, func(a, b Device) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.ID, b.ID), slices.Compare(a.NUMA, b.NUMA))
	})
	return devices
}

// name returns the device of a resource.
func (d Devices) name(path resource.Path) (named Device, ok bool) {
	name := path.Name()
	if h, ok := kubeletdevice.Parse(name); ok {
		return Device{Resource: text(string(h.Resource)), ID: text(h.ID), NUMA: h.NUMA}, true
	}
	extended, ok := d.Names.ExtendedOf(name)
	if !ok {
		return Device{}, false
	}
	named = Device{Resource: text(string(extended)), ID: text(path.DeviceID())}
	for level, instance := range path.Levels() {
		if level == kubeletdevice.Level {
			named.NUMA = numaOf(instance)
		}
	}
	return named, true
}

// text makes s valid UTF-8, without which protobuf refuses the whole message.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// numaOf returns the NUMA nodes of an instance of the level "numa", or none if its name has no such
// numbers.
func numaOf(instance string) []int {
	var nodes []int
	for part := range strings.SplitSeq(instance, "-") {
		node, err := strconv.Atoi(part)
		if err != nil || node < 0 {
			return nil
		}
		nodes = append(nodes, node)
	}
	return nodes
}

// entries returns the devices as version v1 of the API has them.
func entries(devices []Device) []*podresourcesapi.ContainerDevices {
	var list []*podresourcesapi.ContainerDevices
	for _, d := range devices {
		entry := func(topology *podresourcesapi.TopologyInfo) {
			list = append(list, &podresourcesapi.ContainerDevices{ResourceName: d.Resource, DeviceIds: []string{d.ID},
				Topology: topology})
		}
		if len(d.NUMA) == 0 {
			entry(nil)
		}
		for _, node := range d.NUMA {
			entry(&podresourcesapi.TopologyInfo{Nodes: []*podresourcesapi.NUMANode{{ID: int64(node)}}})
		}
	}
	return list
}

// alphaEntries returns the devices as version v1alpha1 of the API has them, which has no topology.
func alphaEntries(devices []Device) []*alphaapi.ContainerDevices {
	var list []*alphaapi.ContainerDevices
	for _, d := range devices {
		list = append(list, &alphaapi.ContainerDevices{ResourceName: d.Resource, DeviceIds: []string{d.ID}})
	}
	return list
}
