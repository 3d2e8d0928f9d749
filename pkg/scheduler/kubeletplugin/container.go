// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletplugin

import (
	"maps"
	"slices"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// container is one container of a pod, with the hosted devices that it asks for.
type container struct {
	name   string
	kind   grouptree.Kind
	turn   int // its place in the pod's spec
	groups []*group
	counts map[types.ResourceName]int // what is asked for beyond the groups
	picks  []pick
	used   map[string]bool // placeholders that fresh has returned
}

// pick is a device that a container has been given.
type pick struct {
	request types.ResourceName
	place   *place
	device  *device
}

// overlaps reports whether the two hold what they hold at the same time. Init containers run one after another, along with
// the sidecars that were started before them.
func (c *container) overlaps(with *container) bool {
	if c.kind == grouptree.Init {
		c, with = with, c
	}
	switch {
	case c == with:
		return true
	case with.kind != grouptree.Init:
		return true
	case c.kind == grouptree.Init:
		return false
	default:
		return c.kind == grouptree.Sidecar && c.turn < with.turn
	}
}

// asks returns how many devices of each resource the container asks for.
func (c *container) asks() map[types.ResourceName]int {
	asked := maps.Clone(c.counts)
	if asked == nil {
		asked = map[types.ResourceName]int{}
	}
	for _, g := range c.groups {
		for _, it := range g.items {
			asked[it.resource]++
		}
	}
	return asked
}

// give gives the container a device for a request.
func (c *container) give(request types.ResourceName, p *place, d *device) {
	d.holders = append(d.holders, c)
	c.picks = append(c.picks, pick{request, p, d})
}

// takeBack undoes give for all but the first n devices.
func (c *container) takeBack(n int) {
	for _, of := range c.picks[n:] {
		of.device.holders = slices.DeleteFunc(of.device.holders, func(holder *container) bool { return holder == c })
	}
	c.picks = c.picks[:n]
}

// places returns the places of the devices that the container has been given.
func (c *container) places() []*place {
	var places []*place
	for _, of := range c.picks {
		if !slices.Contains(places, of.place) {
			places = append(places, of.place)
		}
	}
	return places
}

// fresh returns a placeholder for the NUMA nodes of a place: another one each time, which no group of the container has. For
// those who read the annotation it begins with their name.
func (c *container) fresh(p *place) string {
	placeholder := p.name
	for c.used[placeholder] || slices.ContainsFunc(c.groups, func(g *group) bool { return g.placeholder == placeholder }) {
		placeholder += "+"
	}
	if c.used == nil {
		c.used = map[string]bool{}
	}
	c.used[placeholder] = true
	return placeholder
}

// group is what a container asks for by one placeholder for NUMA nodes.
type group struct {
	owner       *container
	placeholder string
	items       []item
	open        map[types.ResourceName]int // how many devices of each resource it asks for without naming them
	anchor      *place                     // of the devices that it names; nil while there are none
}

// item is one device that is asked for in a group.
type item struct {
	request  types.ResourceName
	resource types.ResourceName
	id       string // as it stands in the device's name; empty for any device
}

// alike reports whether two groups ask for the same number of devices, and may have them in the same places.
func (g *group) alike(with *group) bool {
	return g.owner == with.owner && g.anchor == nil && with.anchor == nil && len(g.items) == len(with.items) &&
		g.home() == with.home() && maps.Equal(g.open, with.open)
}

// home returns the name of the NUMA nodes that the placeholder stands for by name, or "".
func (g *group) home() string {
	if name, ok := strings.CutPrefix(g.placeholder, byName); ok {
		return name
	}
	return ""
}
