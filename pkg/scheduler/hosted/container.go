// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package hosted

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/hosted"
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

// fresh returns a placeholder for NUMA nodes that no group and no device of the container has.
func (c *container) fresh() string {
	for i := 0; ; i++ {
		placeholder := strconv.Itoa(i)
		used := func(g *group) bool { return g.placeholder == placeholder }
		given := func(of pick) bool {
			_, numa, _, _ := hosted.ParseRequest(of.request)
			return numa == placeholder
		}
		if !slices.ContainsFunc(c.groups, used) && !slices.ContainsFunc(c.picks, given) {
			return placeholder
		}
	}
}

// group is what a container asks for by one placeholder for NUMA nodes.
type group struct {
	owner       *container
	placeholder string
	items       []item
}

// item is one device that is asked for in a group.
type item struct {
	request  types.ResourceName
	resource types.ResourceName
	id       string // as it stands in the device's name; empty for any device
}

// open returns how many devices of each resource the group asks for without naming them.
func (g *group) open() map[types.ResourceName]int {
	open := map[types.ResourceName]int{}
	for _, it := range g.items {
		if it.id == "" {
			open[it.resource]++
		}
	}
	return open
}

// named returns the name of the NUMA nodes that the placeholder stands for, if it is a name.
func (g *group) named() (name string, ok bool) { return strings.CutPrefix(g.placeholder, byName) }
