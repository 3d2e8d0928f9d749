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

// container is one container of a pod: what it requests and what is assigned to it.
type container struct {
	name     string
	kind     grouptree.Kind
	position int // in the pod's spec
	groups   []*group
	counts   map[types.ResourceName]int // devices that are requested beyond the groups
	total    map[types.ResourceName]int // all devices that are requested

	assigned     []assignment
	pinned       int             // how many of them, the first ones, were requested by ID
	placeholders map[string]bool // that newPlaceholder returned
}

// assignment is a device that serves a request of a container.
type assignment struct {
	request types.ResourceName
	set     *numaSet
	device  *device
}

// newContainer returns a container that requests nothing. unlisted is its kind if spec does not
// list it.
func newContainer(name string, unlisted grouptree.Kind, spec []grouptree.Container) *container {
	c := &container{
		name: name, kind: unlisted, position: len(spec), placeholders: map[string]bool{},
		counts: map[types.ResourceName]int{}, total: map[types.ResourceName]int{},
	}
	if i := slices.IndexFunc(spec, func(of grouptree.Container) bool { return of.Name == name }); i >= 0 {
		c.kind, c.position = spec[i].Kind, i
	}
	return c
}

// count adds up what the container requests: what its groups do, and what it counts beyond them of
// resources that the node publishes.
func (c *container) count(counts types.ResourceList, published map[types.ResourceName]bool) {
	for _, g := range c.groups {
		for _, it := range g.items {
			c.total[it.resource]++
		}
	}
	for resource, quantity := range counts {
		if more := int(min(quantity, 1<<40)) - c.total[resource]; published[resource] && more > 0 {
			c.counts[resource] = more
			c.total[resource] += more
		}
	}
}

// overlaps reports whether two containers hold devices at the same time. An init container runs
// with the sidecars that were started before it; all others run with all sidecars and regular
// containers.
func (c *container) overlaps(with *container) bool {
	if c.kind == grouptree.Init {
		c, with = with, c
	}
	return c == with || with.kind != grouptree.Init || c.kind == grouptree.Sidecar && c.position < with.position
}

// assign assigns a device to the container.
func (c *container) assign(request types.ResourceName, set *numaSet, d *device) {
	d.holders = append(d.holders, c)
	c.assigned = append(c.assigned, assignment{request, set, d})
}

// release reverts all assignments but the first n.
func (c *container) release(n int) {
	for _, a := range c.assigned[n:] {
		a.device.holders = slices.DeleteFunc(a.device.holders, func(holder *container) bool { return holder == c })
	}
	c.assigned = c.assigned[:n]
}

// sets returns the NUMA sets of the devices that are assigned to the container.
func (c *container) sets() []*numaSet {
	var sets []*numaSet
	for _, a := range c.assigned {
		if !slices.Contains(sets, a.set) {
			sets = append(sets, a.set)
		}
	}
	return sets
}

// newPlaceholder returns a placeholder that the container does not use yet. For those who read the
// annotation it begins with the name of the NUMA set.
func (c *container) newPlaceholder(set *numaSet) string {
	placeholder := set.name
	inUse := func(g *group) bool { return g.placeholder == placeholder }
	for c.placeholders[placeholder] || slices.ContainsFunc(c.groups, inUse) {
		placeholder += "+"
	}
	c.placeholders[placeholder] = true
	return placeholder
}

// group is the requests of a container that have one placeholder for the NUMA nodes.
type group struct {
	owner       *container
	placeholder string
	items       []item
	open        map[types.ResourceName]int // how many devices it requests without an ID, by resource
	set         *numaSet                   // of the devices assigned so far; nil while there are none
}

// item is a request for one device.
type item struct {
	request types.ResourceName
	deviceID
}

// isAlike reports whether two groups request the same and can be served by the same NUMA sets.
func (g *group) isAlike(other *group) bool {
	return g.owner == other.owner && g.set == nil && other.set == nil && len(g.items) == len(other.items) &&
		g.numa() == other.numa() && maps.Equal(g.open, other.open)
}

// numa returns the NUMA nodes that the placeholder stands for by name, or "".
func (g *group) numa() string {
	if name, ok := strings.CutPrefix(g.placeholder, byName); ok {
		return name
	}
	return ""
}
