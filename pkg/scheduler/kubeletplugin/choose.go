// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletplugin

import (
	"maps"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// chooser chooses the devices of one pod on one node.
type chooser struct {
	*wanted
	stock stock
	steps int
}

// newChooser returns one that has given nothing yet. An error says why the pod's requests cannot be served anywhere.
func newChooser(node *types.NodeInfo, pod *types.PodInfo, spec []grouptree.Container) (*chooser, error) {
	stock := takeStock(node)
	wanted, err := read(stock.resources(), pod, spec)
	if err != nil {
		return nil, err
	}
	stock.without(wanted.unwanted)
	return &chooser{wanted: wanted, stock: stock}, nil
}

// choose gives every container what it asks for. The error says what the node lacks.
func (c *chooser) choose() error {
	if err := c.checkSums(); err != nil {
		return err
	}
	var open []*group
	for _, at := range c.containers {
		for _, g := range at.groups {
			if err := c.giveNamed(g); err != nil {
				return err
			}
			if len(g.open) > 0 {
				open = append(open, g)
			}
		}
	}
	if err := c.checkOpen(open); err != nil {
		return err
	}
	named := c.given()
	err := c.giveRest(open)
	if err != nil && c.hasSidecars() {
		c.takeBack(named)
		return c.tryAll(open, err)
	}
	return err
}

// giveRest gives what is not asked for by ID: for each container in turn what is best then. Only where there are sidecars can
// that be a hindrance for others.
func (c *chooser) giveRest(open []*group) error {
	if err := c.giveOpen(open); err != nil {
		return err
	}
	for _, at := range c.containers {
		if err := c.giveCounted(at); err != nil {
			return err
		}
	}
	return nil
}

// giveNamed gives the devices that a group asks for by ID.
func (c *chooser) giveNamed(g *group) error {
	for _, it := range g.items {
		if it.id == "" {
			continue
		}
		id := deviceID{it.resource, it.id}
		p, d := c.stock.find(id)
		switch {
		case d == nil && c.unwanted[id]:
			return bothWays(id)
		case d == nil || !c.mayBe(g, p):
			return absent(id, g)
		case !d.availableTo(g.owner):
			return inUse(id)
		}
		g.owner.give(it.request, p, d)
		g.anchor = p
	}
	return nil
}

// giveCounted gives a container the devices that it only counts: first those that another container of the pod has at other
// times, so that the pod holds no more than it needs to.
func (c *chooser) giveCounted(to *container) error {
	reused := map[types.ResourceName]int{}
	for resource, n := range to.counts {
		for _, p := range c.stock {
			reused[resource] += len(p.shared(resource, to))
		}
		reused[resource] = min(reused[resource], n)
	}
	fresh := map[types.ResourceName]int{}
	for resource, n := range to.counts {
		fresh[resource] = n - reused[resource]
	}
	for _, k := range []packer{{to: to, counts: reused, of: (*place).shared}, {to: to, counts: fresh, of: (*place).untouched}} {
		if !k.pack(c.stock) {
			return c.shortOf(to)
		}
		if err := k.give(); err != nil {
			return err
		}
	}
	return nil
}

// checkSums makes sure that there are as many free devices as containers ask for that run at the same time.
func (c *chooser) checkSums() error {
	var running, sidecars []*container
	for _, at := range c.containers {
		if at.kind != grouptree.Init {
			running = append(running, at)
		}
		if at.kind == grouptree.Sidecar {
			sidecars = append(sidecars, at)
		}
	}
	steps := [][]*container{running}
	for _, at := range c.containers {
		if at.kind == grouptree.Init {
			along := slices.DeleteFunc(slices.Clone(sidecars), func(sidecar *container) bool { return !sidecar.overlaps(at) })
			steps = append(steps, append(along, at))
		}
	}
	for _, step := range steps {
		asked := map[types.ResourceName]int{}
		for _, at := range step {
			for resource, n := range at.asks() {
				asked[resource] += n
			}
		}
		for _, resource := range slices.Sorted(maps.Keys(asked)) {
			if c.stock.free(resource) < asked[resource] {
				return c.short(resource, asked[resource])
			}
		}
	}
	return nil
}

// write writes what was chosen into the pod.
func (c *chooser) write(pod *types.PodInfo) {
	for _, at := range c.containers {
		list := pod.RunningContainers
		if at.kind == grouptree.Init {
			list = pod.InitContainers
		}
		info := list[at.name]
		types.FillContainerInfo(&info)
		for _, of := range at.picks {
			info.DevRequests[of.request] = 1
			info.AllocateFrom[of.request] = of.device.name
			delete(info.Scorer, of.request) // a device is held, whatever a pod would have it scored as
		}
		list[at.name] = info
	}
}

// score says how well the choice packs: for each container the part that it takes of what it could have had at the places
// where it has devices, divided by the number of these places.
func (c *chooser) score() float64 {
	total, served := 0.0, 0
	for _, at := range c.containers {
		if len(at.picks) == 0 {
			continue
		}
		left, places := 0, at.places()
		for _, p := range places {
			for resource := range at.asks() {
				left += len(p.available(resource, at))
			}
		}
		total += float64(len(at.picks)) / float64(len(at.picks)+left) / float64(len(places))
		served++
	}
	return total / float64(served)
}
