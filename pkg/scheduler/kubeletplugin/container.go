// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletplugin

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// container is one container of a pod: what it requests and what is assigned to it.
type container struct {
	name     string
	kind     grouptree.Kind
	position int // in the pod's spec
	groups   []*group
	// requested are the counts of its limits and its annotation, for any node.
	requested types.ResourceList
	counts    map[types.ResourceName]int // requested devices beyond the groups
	total     map[types.ResourceName]int // all requested devices

	assigned     []assignment
	pinned       int             // the number of devices requested by ID; they come first
	placeholders map[string]bool // that newPlaceholder returned
}

// assignment is a device that serves a request of a container.
type assignment struct {
	request types.ResourceName
	set     *numaSet
	device  *device
}

// newContainer returns a container that requests nothing.
func newContainer(name string, kind grouptree.Kind, position int) *container {
	return &container{
		name: name, kind: kind, position: position, placeholders: map[string]bool{},
		counts: map[types.ResourceName]int{}, total: map[types.ResourceName]int{},
	}
}

// forNode returns a copy for an allocation on a node that publishes devices of these resources.
func (c *container) forNode(published map[types.ResourceName]bool) *container {
	copied := newContainer(c.name, c.kind, c.position)
	copied.requested, copied.groups = c.requested, make([]*group, len(c.groups))
	for i, g := range c.groups {
		copied.groups[i] = &group{owner: copied, placeholder: g.placeholder, items: g.items, open: g.open}
	}
	copied.count(published)
	return copied
}

// count adds up the devices that the container requests: those of its groups, and those of
// published resources that it counts beyond the groups.
func (c *container) count(published map[types.ResourceName]bool) {
	for _, g := range c.groups {
		for _, it := range g.items {
			c.total[it.resource]++
		}
	}
	for resource, quantity := range c.requested {
		if more := int(min(quantity, 1<<40)) - c.total[resource]; published[resource] && more > 0 {
			c.counts[resource] = more
			c.total[resource] += more
		}
	}
}

// overlaps reports whether two containers hold devices at the same time. An init container runs
// with the sidecars that were started before it; all others run with all sidecars and regular
// containers.
func (c *container) overlaps(other *container) bool {
	if c.kind == grouptree.Init {
		c, other = other, c
	}
	return c == other || other.kind != grouptree.Init || c.kind == grouptree.Sidecar && c.position < other.position
}

// assign assigns a device to the container.
func (c *container) assign(request types.ResourceName, set *numaSet, d *device) {
	set.hold(d, c)
	c.assigned = append(c.assigned, assignment{request, set, d})
}

// release reverts all assignments but the first n.
func (c *container) release(n int) {
	for _, a := range c.assigned[n:] {
		a.set.release(a.device, c)
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

// newPlaceholder returns a placeholder that the container does not use yet. It begins with the name
// of the NUMA set, for readers of the annotation.
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

// likeness is equal for groups that request the same and can be served by the same NUMA sets.
type likeness struct {
	owner *container
	numa  string
	items int
	open  string
	only  *group // set for a group that equals no other
}

// likeness returns the current likeness of the group.
func (g *group) likeness() likeness {
	if g.set != nil {
		return likeness{only: g}
	}
	like := likeness{owner: g.owner, numa: g.numa(), items: len(g.items)}
	if len(g.open) > 1 {
		like.open = countsText(g.open)
		return like
	}
	for resource, n := range g.open { // nearly all groups have one resource
		like.open = strconv.Itoa(n) + " " + string(resource)
	}
	return like
}

// numa returns the NUMA nodes that the placeholder stands for by name, or "".
func (g *group) numa() string {
	if name, ok := strings.CutPrefix(g.placeholder, kubeletdevice.ByID); ok {
		return name
	}
	return ""
}

// countsText returns how many devices of which resources: "2 nvidia.com/gpu and 1
// vendor.example/nic".
func countsText(counts map[types.ResourceName]int) string {
	var texts []string
	for _, resource := range sortedKeys(counts) {
		texts = append(texts, fmt.Sprintf("%d %s", counts[resource], resource))
	}
	return strings.Join(texts, " and ")
}

func sortedKeys(counts map[types.ResourceName]int) []types.ResourceName {
	return slices.Sorted(maps.Keys(counts))
}
