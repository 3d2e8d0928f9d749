// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletplugin

import (
	"fmt"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// newAllocation returns an allocation without assignments; some of the devices are in use. The
// error says why no node can serve the pod.
func newAllocation(devices *devices, used types.ResourceList, request *podRequest) (*podAllocation, error) {
	if request.err != nil {
		return nil, request.err
	}
	a := &podAllocation{containers: request.containersFor(devices.resources), excluded: request.excluded}
	if !a.empty() {
		a.pool = devices.pool(used)
		a.pool.exclude(a.excluded)
	}
	return a, nil
}

// empty reports whether the pod requests no device of the node.
func (a *podAllocation) empty() bool { return len(a.containers) == 0 }

// run assigns all devices that the containers request. The error says what the node lacks.
func (a *podAllocation) run() error {
	if err := a.checkTotals(); err != nil {
		return err
	}
	if err := a.checkSize(); err != nil {
		return err
	}
	var open []*group
	var byID map[deviceID]location
	for _, c := range a.containers {
		for _, g := range c.groups {
			if byID == nil && len(g.open) < len(g.items) {
				byID = a.pool.byID()
			}
			if err := a.assignPinned(g, byID); err != nil {
				return err
			}
			if len(g.open) > 0 {
				open = append(open, g)
			}
		}
		c.pinned = len(c.assigned)
	}
	if err := a.checkGroups(open); err != nil {
		return err
	}
	if err := a.assign(open); err != nil {
		return err
	}
	if a.exceedsAny() {
		a.assignWithin(open)
	}
	return nil
}

// assign assigns devices to the groups and the counts, which have none.
func (a *podAllocation) assign(open []*group) error {
	a.steps = 0
	err := a.assignStaged(open)
	if err == nil || !a.hasSidecars() {
		return err
	}
	a.unassign()
	return a.assignBySearch(open, err)
}

// checkTotals checks for each phase of the pod's life that enough devices are free for the
// containers that run in this phase, and sets counted.
func (a *podAllocation) checkTotals() error {
	phases := []*container{nil} // the init container that runs; nil after all of them
	for _, c := range a.containers {
		if c.kind == grouptree.Init {
			phases = append(phases, c)
		}
	}
	a.counted = map[types.ResourceName]int{}
	for _, init := range phases {
		needed := map[types.ResourceName]int{}
		for _, c := range a.containers {
			a.inspections++
			if init == nil && c.kind != grouptree.Init || init != nil && c.overlaps(init) {
				for resource, n := range c.total {
					needed[resource] += n
				}
			}
		}
		for _, resource := range sortedKeys(needed) {
			if a.pool.free(resource) < needed[resource] {
				return a.errInsufficient(resource, needed[resource])
			}
			a.counted[resource] = max(a.counted[resource], needed[resource])
		}
	}
	return nil
}

// maxDevices is how many devices a pod may request. A device that containers share at different
// times counts once for each of them.
const maxDevices = 512

// checkSize returns an error if the pod requests too many devices, in too many containers, or more
// devices in one container than its encoded allocation can contain in the runtime, with any choice
// of devices. It runs before the search.
func (a *podAllocation) checkSize() error {
	if requesting := len(a.containers); requesting > grouptree.MaxContainers {
		return fmt.Errorf("cannot serve the pod: %d of its containers request devices, more than %d: request them in "+
			"fewer containers", requesting, grouptree.MaxContainers)
	}
	devices, least := 0, map[types.ResourceName]int{}
	for _, c := range a.containers {
		bytes, requested := 0, 0
		for resource, n := range c.total {
			if _, known := least[resource]; !known {
				least[resource] = deviceinfo.LeastDeviceBytes(a.pool.shortest(resource))
			}
			requested += n
			bytes += n * least[resource]
		}
		if bytes > deviceinfo.MaxEncodedBytes {
			return fmt.Errorf("cannot serve container %q: its %d devices take more than %d bytes in the container "+
				"runtime: request fewer devices in one container", c.name, requested, deviceinfo.MaxEncodedBytes)
		}
		if devices += requested; devices > maxDevices {
			return fmt.Errorf("cannot serve the pod: it requests more than %d devices: request fewer", maxDevices)
		}
	}
	return nil
}

// assignPinned assigns the devices that a group requests by ID.
func (a *podAllocation) assignPinned(g *group, byID map[deviceID]location) error {
	for _, it := range g.items {
		if it.id == "" {
			continue
		}
		found := byID[it.deviceID]
		set, d := found.set, found.device
		switch {
		case d == nil && a.excluded[it.deviceID]:
			return errExcluded(it.deviceID)
		case d == nil || !g.canUse(set):
			return errAbsent(it.deviceID, g)
		case !d.availableTo(g.owner):
			return errNotFree(it.deviceID)
		}
		g.owner.assign(it.request, set, d)
		g.set = set
	}
	return nil
}

// assignStaged assigns devices to the groups, and then to the counts of one container after the
// other. Only with sidecars can an assignment to one container leave too few devices for another.
func (a *podAllocation) assignStaged(open []*group) error {
	if err := a.assignGroups(open); err != nil {
		return err
	}
	for _, c := range a.containers {
		if err := a.assignCounts(c); err != nil {
			return err
		}
		if a.exhausted() {
			return errSearchStopped
		}
	}
	if a.bounded && a.exceedsAny() {
		return errExceeds
	}
	return nil
}

// write writes the assignments into the pod.
func (a *podAllocation) write(pod *types.PodInfo) {
	for _, c := range a.containers {
		list := pod.RunningContainers
		if c.kind == grouptree.Init {
			list = pod.InitContainers
		}
		info := list[c.name]
		types.FillContainerInfo(&info)
		for _, assigned := range c.assigned {
			info.DevRequests[assigned.request] = 1
			info.AllocateFrom[assigned.request] = assigned.device.name
			delete(info.KubeRequests, assigned.device.resource)
			// A scorer of the pod could make a mask of the device, and no pod would hold the
			// device.
			delete(info.Scorer, assigned.request)
		}
		list[c.name] = info
	}
}

// score returns how well the devices are packed, from 0 to 1. The score of a container is the part
// of the devices available in its NUMA sets that it gets, divided by the number of these sets; the
// result is the mean over the containers.
func (a *podAllocation) score() float64 {
	total, served := 0.0, 0
	for _, c := range a.containers {
		if len(c.assigned) == 0 {
			continue
		}
		left, sets := 0, c.sets()
		for _, set := range sets {
			for resource := range c.total {
				available, _ := a.count(set, resource, c)
				left += available
			}
		}
		total += float64(len(c.assigned)) / float64(len(c.assigned)+left) / float64(len(sets))
		served++
	}
	return total / float64(served)
}

// hasSidecars reports whether the pod has sidecars.
func (a *podAllocation) hasSidecars() bool {
	return slices.ContainsFunc(a.containers, func(c *container) bool { return c.kind == grouptree.Sidecar })
}
