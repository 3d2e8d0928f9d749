// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletplugin

import (
	"maps"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// need is one device that a container asks for and does not name.
type need struct {
	owner    *container
	resource types.ResourceName
	request  types.ResourceName // none for one that is only counted
	group    *group             // nil for one that is only counted
}

// hasSidecars reports whether containers of the pod run along with some of its init containers and not with others. Then it
// matters which of several free devices a container has: to one that comes later, not all of them are free.
func (c *chooser) hasSidecars() bool {
	return slices.ContainsFunc(c.containers, func(at *container) bool { return at.kind == grouptree.Sidecar })
}

// tryAll goes through all ways to give the open devices of groups and those that sidecars count: what the others count can
// be had after that, since there are enough devices at any time. why is the error if there is no way.
func (c *chooser) tryAll(open []*group, why error) error {
	var needs []need
	for _, g := range open {
		for _, it := range g.items {
			if it.id == "" {
				needs = append(needs, need{g.owner, it.resource, it.request, g})
			}
		}
	}
	for _, at := range c.containers {
		if at.kind == grouptree.Sidecar {
			for _, resource := range slices.Sorted(maps.Keys(at.counts)) {
				needs = append(needs, slices.Repeat([]need{{owner: at, resource: resource}}, at.counts[resource])...)
			}
		}
	}
	c.steps = 0
	switch {
	case c.try(needs, 0):
	case c.steps == stepLimit:
		return errGivenUp
	default:
		return why
	}
	for _, at := range c.containers {
		if at.kind != grouptree.Sidecar {
			if err := c.giveCounted(at); err != nil {
				return err
			}
		} else if err := at.nameCounted(); err != nil {
			return err
		}
	}
	return nil
}

// try gives the needed devices, the first of them from a place that is not before one of the stock. It returns false, and gives
// no device, when there is no way to give them all, or when it finds none within its steps.
func (c *chooser) try(needs []need, from int) bool {
	if len(needs) == 0 {
		return true
	}
	n, rest := needs[0], needs[1:]
	for at, p := range c.stock {
		if at < from || n.group != nil && !c.mayBe(n.group, p) {
			continue
		}
		first := 0
		if n.group == nil && len(rest) > 0 && rest[0] == n {
			first = at // of devices that are counted together, the order does not matter
		}
		for _, d := range distinct(p.available(n.resource, n.owner)) {
			if c.steps == stepLimit {
				return false
			}
			c.steps++
			if c.tryWith(n, p, d, rest, first) {
				return true
			}
		}
	}
	return false
}

// tryWith is try for all needs but the first, which it gives a device.
func (c *chooser) tryWith(n need, p *place, d *device, rest []need, from int) bool {
	given := len(n.owner.picks)
	n.owner.give(n.request, p, d)
	anchor := (*place)(nil)
	if n.group != nil {
		anchor, n.group.anchor = n.group.anchor, p
	}
	if c.try(rest, from) {
		return true
	}
	n.owner.takeBack(given)
	if n.group != nil {
		n.group.anchor = anchor
	}
	return false
}

// distinct returns one of each kind of devices that the same containers have: which of them is given makes no difference.
func distinct(devices []*device) []*device {
	var found []*device
	for _, d := range devices {
		same := func(other *device) bool {
			return len(d.holders) == len(other.holders) &&
				!slices.ContainsFunc(d.holders, func(holder *container) bool { return !slices.Contains(other.holders, holder) })
		}
		if !slices.ContainsFunc(found, same) {
			found = append(found, d)
		}
	}
	return found
}

// nameCounted makes requests for the devices that the container was given and only counts.
func (c *container) nameCounted() error {
	for i, of := range c.picks {
		if of.request != "" {
			continue
		}
		resource, _, _, _ := kubeletdevice.ParseRequest(of.device.name)
		request, err := kubeletdevice.Request(resource, c.fresh(of.place), "0")
		if err != nil {
			return err
		}
		c.picks[i].request = request
	}
	return nil
}

// given returns how many devices each container has.
func (c *chooser) given() map[*container]int {
	given := map[*container]int{}
	for _, at := range c.containers {
		given[at] = len(at.picks)
	}
	return given
}

// takeBack undoes what containers were given since they had so many.
func (c *chooser) takeBack(given map[*container]int) {
	for _, at := range c.containers {
		at.takeBack(given[at])
		clear(at.used)
	}
}
