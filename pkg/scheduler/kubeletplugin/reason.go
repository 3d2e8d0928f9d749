// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletplugin

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// The texts of the errors follow on a number of nodes, and are the same for all nodes that lack the same.

// reason is an error as the reason why a pod does not fit.
type reason struct{ error }

// GetReason returns a text that follows on a number of nodes.
func (r reason) GetReason() string { return r.Error() }

// GetInfo returns nothing: resources and quantities are in the text.
func (reason) GetInfo() (name types.ResourceName, requested, used, capacity int64) {
	return "", 0, 0, 0
}

var errGivenUp = errors.New("were given up after too many steps of the search for NUMA nodes: use fewer placeholders for them")

// short says that there are fewer free devices than are needed.
func (c *chooser) short(resource types.ResourceName, needed int) error {
	besides := ""
	for id := range c.unwanted {
		if id.resource == resource {
			besides = " besides the unwanted"
		}
	}
	switch {
	case !c.stock.resources()[resource]:
		return fmt.Errorf("have no %s", resource)
	case needed == 1:
		return fmt.Errorf("have no free %s%s", resource, besides)
	default:
		return fmt.Errorf("have fewer than %d free %s%s", needed, resource, besides)
	}
}

// shortOf says that what is left after the pod's other requests is not what a container counts.
func (c *chooser) shortOf(to *container) error {
	return fmt.Errorf("have too few devices left for %s of container %q", list(to.counts), to.name)
}

// lacking says that a group can be met nowhere.
func (c *chooser) lacking(g *group) error {
	what := list(g.open)
	if at := g.home(); at != "" {
		return fmt.Errorf("do not have %s free on NUMA node %s", what, at)
	}
	for _, it := range g.items {
		if it.id != "" {
			return fmt.Errorf("do not have %s free on the NUMA node of %s %q", what, it.resource, it.id)
		}
	}
	return fmt.Errorf("have no NUMA node with %s free", what)
}

// lackingTogether says that each group can be met, but not all at once.
func lackingTogether(groups []*group) error {
	var texts []string
	for _, g := range groups {
		texts = append(texts, list(g.open))
	}
	slices.Sort(texts)
	return fmt.Errorf("do not have free at once, each on one NUMA node: %s", strings.Join(texts, "; "))
}

// absent says that the device does not exist where it is asked for.
func absent(id deviceID, g *group) error {
	if at := g.home(); at != "" {
		return fmt.Errorf("have no %s %q on NUMA node %s", id.resource, id.id, at)
	}
	if len(g.items) > 1 {
		return fmt.Errorf("have no %s %q on one NUMA node with the others of %s", id.resource, id.id, g.placeholder)
	}
	return fmt.Errorf("have no %s %q", id.resource, id.id)
}

// inUse says that a device that exists cannot be given.
func inUse(id deviceID) error {
	return fmt.Errorf("have %s %q in use or unhealthy", id.resource, id.id)
}

// bothWays says that a device is asked for and not wanted.
func bothWays(id deviceID) error {
	return fmt.Errorf("cannot serve %s %q: the pod asks for it and does not want it", id.resource, id.id)
}

// list writes how many devices of which resources: "2 nvidia.com/gpu and 1 vendor.example/nic".
func list(of map[types.ResourceName]int) string {
	var texts []string
	for _, resource := range slices.Sorted(maps.Keys(of)) {
		texts = append(texts, fmt.Sprintf("%d %s", of[resource], resource))
	}
	return strings.Join(texts, " and ")
}

// unnamed says that a request ends where a name should stand.
func unnamed(request types.ResourceName) error {
	return fmt.Errorf("%s has no name behind %q: add the ID of a device or the number of a NUMA node", request, byName)
}
