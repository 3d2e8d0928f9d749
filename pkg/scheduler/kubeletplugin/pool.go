// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletplugin

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// deviceID identifies a device within its node. The ID is spelled as in the device's name.
type deviceID struct {
	resource types.ResourceName
	id       string
}

// device is one device of a node.
type device struct {
	deviceID
	name types.ResourceName
	free bool // healthy and not held by another pod
	// holders are the containers of the pod that it is assigned to.
	holders []*container
}

// availableTo reports whether the device can be assigned to a container.
func (d *device) availableTo(c *container) bool {
	return d.free && !slices.ContainsFunc(d.holders, c.overlaps)
}

// request returns the name of a request that the device serves.
func (d *device) request(placeholder string, number int) types.ResourceName {
	// The only error is an invalid resource, which no device has.
	name, _ := kubeletdevice.Request(d.resource, placeholder, strconv.Itoa(number))
	return name
}

// numaSet is the devices that belong to exactly the same NUMA nodes, by resource and in the order
// of their names.
type numaSet struct {
	name    string
	devices map[types.ResourceName][]*device
}

// available returns the devices of a resource that can be assigned to a container. Those that other
// containers of the pod hold at other times come first, as they cost the pod nothing; shared is
// their number.
func (s *numaSet) available(resource types.ResourceName, c *container) (devices []*device, shared int) {
	var unheld []*device
	for _, d := range s.devices[resource] {
		switch {
		case !d.availableTo(c):
		case len(d.holders) > 0:
			devices = append(devices, d)
		default:
			unheld = append(unheld, d)
		}
	}
	return append(devices, unheld...), len(devices)
}

// pool is the devices of a node, by NUMA set in the order of the sets' names.
type pool []*numaSet

// newPool returns all devices of a node, healthy or not.
func newPool(node *types.NodeInfo) pool {
	sets := map[string]*numaSet{}
	for name, quantity := range node.Allocatable {
		resource, numa, id, ok := kubeletdevice.ParseRequest(name)
		if !ok {
			continue
		}
		set := sets[numa]
		if set == nil {
			set = &numaSet{numa, map[types.ResourceName][]*device{}}
			sets[numa] = set
		}
		d := &device{deviceID: deviceID{resource, id}, name: name, free: quantity > 0 && node.Used[name] < quantity}
		set.devices[resource] = append(set.devices[resource], d)
	}
	for _, set := range sets {
		for _, devices := range set.devices {
			slices.SortFunc(devices, func(a, b *device) int { return cmp.Compare(a.name, b.name) })
		}
	}
	return slices.SortedFunc(maps.Values(sets), func(a, b *numaSet) int { return cmp.Compare(a.name, b.name) })
}

// exclude removes devices. Their resources remain known.
func (p pool) exclude(excluded map[deviceID]bool) {
	for _, set := range p {
		for resource, devices := range set.devices {
			set.devices[resource] = slices.DeleteFunc(devices, func(d *device) bool { return excluded[d.deviceID] })
		}
	}
}

// resources returns the resources that the node publishes devices of.
func (p pool) resources() map[types.ResourceName]bool {
	found := map[types.ResourceName]bool{}
	for _, set := range p {
		for resource := range set.devices {
			found[resource] = true
		}
	}
	return found
}

// find returns the device with an ID and its NUMA set, or nil.
func (p pool) find(id deviceID) (*numaSet, *device) {
	for _, set := range p {
		for _, d := range set.devices[id.resource] {
			if d.deviceID == id {
				return set, d
			}
		}
	}
	return nil, nil
}

// free returns the number of free devices of a resource.
func (p pool) free(resource types.ResourceName) int {
	n := 0
	for _, set := range p {
		for _, d := range set.devices[resource] {
			if d.free {
				n++
			}
		}
	}
	return n
}
