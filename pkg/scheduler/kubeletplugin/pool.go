// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletplugin

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// deviceID identifies a device within its node. The ID is spelled as in the device's name.
type deviceID struct {
	resource types.ResourceName
	id       string
}

// device is one device of a node.
type device struct {
	deviceID
	name types.ResourceName
	free bool // healthy and not held by another pod
	// whole is the ID of the device that this one is a share of, or empty.
	whole string
	// position is how many shares of the same whole the pod gets before this one, and taken how
	// many shares other pods hold. The last call of available set them.
	position, taken int
	// holders are the containers of the pod that hold it.
	holders []*container
}

// availableTo reports whether the device can be assigned to a container.
func (d *device) availableTo(c *container) bool {
	return d.free && !slices.ContainsFunc(d.holders, c.overlaps)
}

// request returns the name of a request that the device serves.
func (d *device) request(placeholder string, number int) types.ResourceName {
	// The only error is an invalid resource, which no device has.
	name, _ := kubeletdevice.Request(d.resource, placeholder, strconv.Itoa(number))
	return name
}

// numaSet is the devices that belong to exactly the same NUMA nodes, by resource.
type numaSet struct {
	name  string
	kinds map[types.ResourceName]*kind
}

// kind is the devices of one resource in a NUMA set.
type kind struct {
	devices []*device // in the order of their names
	free    int       // how many of them are free
	held    []*device // those that the pod holds, in any order
	shares  bool      // some of them are shares
}

// kindOf returns the devices of a resource. The set may have none.
func (s *numaSet) kindOf(resource types.ResourceName) *kind {
	if k := s.kinds[resource]; k != nil {
		return k
	}
	return &kind{}
}

// comparePositions orders available devices so that the pod's shares come from as many wholes as
// possible, first from those of which other pods hold the fewest shares.
func comparePositions(a, b *device) int {
	return cmp.Or(cmp.Compare(a.position, b.position), cmp.Compare(a.taken, b.taken))
}

// hold notes that a container holds a device.
func (s *numaSet) hold(d *device, c *container) {
	if len(d.holders) == 0 {
		k := s.kinds[d.resource]
		k.held = append(k.held, d)
	}
	d.holders = append(d.holders, c)
}

// release undoes hold.
func (s *numaSet) release(d *device, c *container) {
	d.holders = slices.DeleteFunc(d.holders, func(holder *container) bool { return holder == c })
	if len(d.holders) == 0 {
		k := s.kinds[d.resource]
		index := len(k.held) - 1
		for k.held[index] != d { // it is mostly the last one
			index--
		}
		k.held = slices.Delete(k.held, index, index+1)
	}
}

// pool is the devices of a node, by NUMA set in the order of the sets' names.
type pool []*numaSet

// devices are the devices of a node, healthy or not, as its inventory lists them. They are
// immutable.
type devices struct {
	sets      []deviceSet // in the order of their names
	count     int
	resources map[types.ResourceName]bool
}

// deviceSet is the devices that belong to exactly the same NUMA nodes.
type deviceSet struct {
	name  string
	kinds []deviceKind
}

// deviceKind is the devices of one resource in a set, in the order of their names.
type deviceKind struct {
	resource types.ResourceName
	devices  []publishedDevice
	shares   bool // some of them are shares
}

// publishedDevice is a device of a node's inventory.
type publishedDevice struct {
	deviceID
	name     types.ResourceName
	whole    string // see wholeOf
	quantity int64  // 0 for one that is unhealthy
}

// wholeOf returns the ID of the device that a share belongs to, or "" for a device that is no
// share. NVIDIA's plugin names shares GPU-7f3a::0, GPU-7f3a::1, for time-slicing and for MPS.
func wholeOf(id string) string {
	whole, number, found := strings.Cut(id, "::")
	if _, err := strconv.ParseUint(number, 10, 32); !found || err != nil {
		return ""
	}
	return whole
}

// readDevices returns the devices of a node.
func readDevices(node *types.NodeInfo) *devices {
	read := &devices{resources: map[types.ResourceName]bool{}}
	sets := map[string]map[types.ResourceName][]publishedDevice{}
	for name, quantity := range node.Allocatable {
		resource, numa, id, ok := kubeletdevice.ParseRequest(name)
		if !ok {
			continue
		}
		if sets[numa] == nil {
			sets[numa] = map[types.ResourceName][]publishedDevice{}
		}
		sets[numa][resource] = append(sets[numa][resource],
			publishedDevice{deviceID{resource, id}, name, wholeOf(id), quantity})
		read.resources[resource] = true
		read.count++
	}
	for _, numa := range slices.Sorted(maps.Keys(sets)) {
		set := deviceSet{name: numa}
		for _, resource := range slices.Sorted(maps.Keys(sets[numa])) {
			found := sets[numa][resource]
			slices.SortFunc(found, func(a, b publishedDevice) int { return cmp.Compare(a.name, b.name) })
			shares := slices.ContainsFunc(found, func(d publishedDevice) bool { return d.whole != "" })
			set.kinds = append(set.kinds, deviceKind{resource, found, shares})
		}
		read.sets = append(read.sets, set)
	}
	return read
}

// Resources returns the resources of which there are devices.
func (d *devices) Resources() map[types.ResourceName]bool { return d.resources }

// anyUsed reports whether pods hold any of the devices.
func (d *devices) anyUsed(used types.ResourceList) bool {
	if len(used) == 0 {
		return false
	}
	for _, set := range d.sets {
		for _, kind := range set.kinds {
			for i := range kind.devices {
				if used[kind.devices[i].name] > 0 {
					return true
				}
			}
		}
	}
	return false
}

// pool returns all devices; used lists those in use.
func (d *devices) pool(used types.ResourceList) pool {
	all, p := make([]device, 0, d.count), make(pool, len(d.sets))
	for i, from := range d.sets {
		set := &numaSet{from.name, make(map[types.ResourceName]*kind, len(from.kinds))}
		for _, published := range from.kinds {
			k := &kind{devices: make([]*device, len(published.devices)), shares: published.shares}
			for j, listed := range published.devices {
				all = append(all, device{
					deviceID: listed.deviceID, name: listed.name, whole: listed.whole,
					free: listed.quantity > 0 && used[listed.name] < listed.quantity,
				})
				if k.devices[j] = &all[len(all)-1]; k.devices[j].free {
					k.free++
				}
			}
			set.kinds[published.resource] = k
		}
		p[i] = set
	}
	return p
}

// exclude removes devices. Their resources stay known.
func (p pool) exclude(excluded map[deviceID]bool) {
	if len(excluded) == 0 {
		return
	}
	for _, set := range p {
		for _, k := range set.kinds {
			k.devices = slices.DeleteFunc(k.devices, func(d *device) bool {
				if excluded[d.deviceID] && d.free {
					k.free--
				}
				return excluded[d.deviceID]
			})
		}
	}
}

// resources returns the resources that the node publishes devices of.
func (p pool) resources() map[types.ResourceName]bool {
	found := map[types.ResourceName]bool{}
	for _, set := range p {
		for resource := range set.kinds {
			found[resource] = true
		}
	}
	return found
}

// location is where a device is.
type location struct {
	set    *numaSet
	device *device
}

// byID returns the devices by their IDs.
func (p pool) byID() map[deviceID]location {
	all := map[deviceID]location{}
	for _, set := range p {
		for _, k := range set.kinds {
			for _, d := range k.devices {
				if _, twice := all[d.deviceID]; !twice {
					all[d.deviceID] = location{set, d}
				}
			}
		}
	}
	return all
}

// ordinary returns how many inspections a request for one device takes at most.
func (p pool) ordinary() int {
	inspections := 0
	for _, set := range p {
		for _, k := range set.kinds {
			inspections += 2 * (1 + len(k.devices))
			if k.shares { // they are sorted
				inspections += 4 * len(k.devices)
			}
		}
	}
	return inspections
}

// shortest returns the shortest name of a device of a resource. The node has such a device.
func (p pool) shortest(resource types.ResourceName) types.ResourceName {
	var shortest types.ResourceName
	for _, set := range p {
		for _, d := range set.kindOf(resource).devices {
			if shortest == "" || len(d.name) < len(shortest) {
				shortest = d.name
			}
		}
	}
	return shortest
}

// free returns the number of free devices of a resource.
func (p pool) free(resource types.ResourceName) int {
	n := 0
	for _, set := range p {
		n += set.kindOf(resource).free
	}
	return n
}
