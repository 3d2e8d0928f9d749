// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletplugin

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// The texts of the errors are predicates whose subject is a number of nodes. Nodes that lack the
// same have the same text.

var errSearchStopped = errors.New(
	"were given up after too many steps of the search for NUMA nodes: use fewer placeholders for them")

// errInsufficient: there are fewer free devices than needed.
func (a *podAllocation) errInsufficient(resource types.ResourceName, needed int) error {
	exception := ""
	for id := range a.excluded {
		if id.resource == resource {
			exception = " other than the excluded ones"
		}
	}
	switch {
	case !a.pool.resources()[resource]:
		return fmt.Errorf("have no %s", resource)
	case needed == 1:
		return fmt.Errorf("have no free %s%s", resource, exception)
	default:
		return fmt.Errorf("have fewer than %d free %s%s", needed, resource, exception)
	}
}

// errLeftOver: the pod's other requests leave too few devices for the counts of a container.
func errLeftOver(c *container) error {
	return fmt.Errorf("have too few devices left for %s of container %q", countsText(c.counts), c.name)
}

// errNoSet: no NUMA set can serve the group.
func errNoSet(g *group) error {
	open := countsText(g.open)
	if numa := g.numa(); numa != "" {
		return fmt.Errorf("do not have %s free on NUMA node %s", open, numa)
	}
	for _, it := range g.items {
		if it.id != "" {
			return fmt.Errorf("do not have %s free on the NUMA node of %s %q", open, it.resource, it.id)
		}
	}
	return fmt.Errorf("have no NUMA node with %s free", open)
}

// errNotTogether: the node can serve each group, but not all of them at once.
func errNotTogether(groups []*group) error {
	var texts []string
	for _, g := range groups[:min(len(groups), maxNamed)] {
		texts = append(texts, countsText(g.open))
	}
	slices.Sort(texts)
	if more := len(groups) - len(texts); more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return fmt.Errorf("do not have free at once, each on one NUMA node: %s", strings.Join(texts, "; "))
}

// maxNamed is how many groups a reason names.
const maxNamed = 16

// errAbsent: the device does not exist where the group requests it.
func errAbsent(id deviceID, g *group) error {
	if numa := g.numa(); numa != "" {
		return fmt.Errorf("have no %s %q on NUMA node %s", id.resource, id.id, numa)
	}
	if len(g.items) > 1 {
		return fmt.Errorf("have no %s %q on one NUMA node with the others of %s", id.resource, id.id, g.placeholder)
	}
	return fmt.Errorf("have no %s %q", id.resource, id.id)
}

// errNotFree: the device exists but cannot be assigned.
func errNotFree(id deviceID) error {
	return fmt.Errorf("have %s %q in use or unhealthy", id.resource, id.id)
}

// errExcluded: the pod requests a device and excludes it.
func errExcluded(id deviceID) error {
	return fmt.Errorf("cannot serve %s %q: the pod requests and excludes it", id.resource, id.id)
}
