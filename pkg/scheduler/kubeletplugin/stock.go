// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletplugin

import (
	"cmp"
	"maps"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// device is one hosted device of a node.
type device struct {
	name types.ResourceName
	id   string // as it stands in the name
	free bool   // healthy, and no other pod has it
	// holders are the pod's own containers that have been given it.
	holders []*container
}

// availableTo reports whether a container may have the device beside those that have been given it.
func (d *device) availableTo(c *container) bool {
	return d.free && !slices.ContainsFunc(d.holders, c.overlaps)
}

// place is the devices of a node that are on the same NUMA nodes, by their resource and in the order of their names.
type place struct {
	name    string
	devices map[types.ResourceName][]*device
}

// available returns those of a resource that a container may have. Those that another container of the pod has, too, come
// first: they cost the pod nothing.
func (p *place) available(resource types.ResourceName, c *container) []*device {
	return append(p.shared(resource, c), p.untouched(resource, c)...)
}

// shared returns those that a container may have and another one of the pod has.
func (p *place) shared(resource types.ResourceName, c *container) []*device {
	return p.which(resource, func(d *device) bool { return d.availableTo(c) && len(d.holders) > 0 })
}

// untouched returns those that a container may have and no other one of the pod has.
func (p *place) untouched(resource types.ResourceName, c *container) []*device {
	return p.which(resource, func(d *device) bool { return d.availableTo(c) && len(d.holders) == 0 })
}

func (p *place) which(resource types.ResourceName, is func(*device) bool) []*device {
	var found []*device
	for _, d := range p.devices[resource] {
		if is(d) {
			found = append(found, d)
		}
	}
	return found
}

// stock is the hosted devices of a node, in the order of the names of their places.
type stock []*place

// takeStock returns the hosted devices of a node, healthy or not.
func takeStock(node *types.NodeInfo) stock {
	places := map[string]*place{}
	for name, quantity := range node.Allocatable {
		resource, at, id, ok := kubeletdevice.ParseRequest(name)
		if !ok {
			continue
		}
		p := places[at]
		if p == nil {
			p = &place{at, map[types.ResourceName][]*device{}}
			places[at] = p
		}
		p.devices[resource] = append(p.devices[resource], &device{name: name, id: id, free: quantity > 0 && node.Used[name] < quantity})
	}
	s := make(stock, 0, len(places))
	for _, name := range slices.Sorted(maps.Keys(places)) {
		s = append(s, places[name])
		for _, devices := range places[name].devices {
			slices.SortFunc(devices, func(a, b *device) int { return cmp.Compare(a.name, b.name) })
		}
	}
	return s
}

// without leaves out devices. Their resources are still known.
func (s stock) without(unwanted map[deviceID]bool) {
	if len(unwanted) == 0 {
		return
	}
	for _, p := range s {
		for resource, devices := range p.devices {
			p.devices[resource] = slices.DeleteFunc(devices, func(d *device) bool { return unwanted[deviceID{resource, d.id}] })
		}
	}
}

// resources returns the resources of which there are devices.
func (s stock) resources() map[types.ResourceName]bool {
	found := map[types.ResourceName]bool{}
	for _, p := range s {
		for resource := range p.devices {
			found[resource] = true
		}
	}
	return found
}

// find returns the device of that ID and its place, or nil.
func (s stock) find(id deviceID) (*place, *device) {
	for _, p := range s {
		for _, d := range p.devices[id.resource] {
			if d.id == id.id {
				return p, d
			}
		}
	}
	return nil, nil
}

// free returns how many devices of a resource no other pod has.
func (s stock) free(resource types.ResourceName) int {
	n := 0
	for _, p := range s {
		for _, d := range p.devices[resource] {
			if d.free {
				n++
			}
		}
	}
	return n
}
