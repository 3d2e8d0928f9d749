// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"maps"
	"math"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// usage is what pods hold, under the names that the node has now, by resource and by device. It
// is read once for any number of requests.
type usage struct {
	requested requestedNames
	resources map[types.ResourceName][]share
	devices   map[string][]share // by path
}

// share is what one pod holds of a resource or of a device.
type share struct {
	holder   *Allocation
	quantity int64 // of the resource
	all      bool  // of one of the device's resources, the pod holds all there is
}

// newUsage returns one without pods, for requests of those names.
func newUsage(requested requestedNames) *usage {
	return &usage{
		requested: requested,
		resources: map[types.ResourceName][]share{}, devices: map[string][]share{},
	}
}

// add adds a pod and what it holds.
func (u *usage) add(pod *Allocation, holds types.ResourceList, capacity Capacity) {
	now := u.underCurrentNames(holds, capacity)
	for name, quantity := range now {
		u.resources[name] = append(u.resources[name], share{holder: pod, quantity: quantity})
	}
	for device, all := range devicesOf(now, capacity) {
		u.devices[device] = append(u.devices[device], share{holder: pod, all: all})
	}
}

// conflict returns the first of the requested resources, by name, that the node does not have next
// to what all pods but the requesting one hold, or nil. Of the devices, see alone.
func (u *usage) conflict(requested types.ResourceList, requesting *Allocation, capacity Capacity) *Conflict {
	for _, name := range slices.Sorted(maps.Keys(requested)) {
		quantity, _ := capacity(name)
		c := &Conflict{Resource: name, Requested: requested[name], Capacity: quantity}
		// Written so that no sum can overflow.
		for _, s := range u.resources[name] {
			if s.holder != requesting {
				c.Held += min(max(0, s.quantity), math.MaxInt64-c.Held)
			}
		}
		if c.Requested <= c.Capacity && c.Held <= c.Capacity-c.Requested {
			continue
		}
		c.addHolders(u.resources[name], func(s share) bool { return s.holder != requesting && s.quantity > 0 })
		return c
	}
	return u.exclusiveConflict(requested, requesting, capacity)
}

// exclusiveConflict returns the first requested resource, by name, of a device that the pod cannot
// share with those that hold something of it, or nil. A pod that holds all there is of one of a
// device's resources, as the card of a GPU, has the device alone: it uses the device whichever
// resource it was given, and so would the others.
func (u *usage) exclusiveConflict(requested types.ResourceList, requesting *Allocation, capacity Capacity) *Conflict {
	wanted := devicesOf(requested, capacity)
	for _, name := range slices.Sorted(maps.Keys(requested)) {
		device := deviceOf(name)
		all, isDevice := wanted[device]
		if !isDevice {
			continue
		}
		quantity, _ := capacity(name)
		c := &Conflict{Resource: name, Requested: requested[name], Capacity: quantity, Alone: true}
		c.addHolders(u.devices[device], func(s share) bool { return s.holder != requesting && (all || s.all) })
		if len(c.Holders) > 0 {
			return c
		}
	}
	return nil
}

// addHolders adds the pods of those shares that count.
func (c *Conflict) addHolders(shares []share, counts func(share) bool) {
	for _, s := range shares {
		if counts(s) {
			c.Holders = append(c.Holders, s.holder.Pod())
			c.uids = append(c.uids, s.holder.PodUID)
		}
	}
	slices.Sort(c.Holders)
}

// underCurrentNames returns what is held under the names that the node has now. A device keeps its
// ID, but the groups above it are numbered again when the node discovers its devices again: what is
// held under a name that the node has no more counts for each requested device that is the same.
func (u *usage) underCurrentNames(held types.ResourceList, capacity Capacity) types.ResourceList {
	now := types.ResourceList{}
	for name, quantity := range held {
		if _, known := capacity(name); known {
			grouptree.Take(now, types.ResourceList{name: quantity})
			continue
		}
		for _, current := range u.requested.currentNames(name) {
			grouptree.Take(now, types.ResourceList{current: quantity})
		}
	}
	return now
}

// deviceID identifies a device, whichever groups it is in.
type deviceID struct{ level, instance string }

// requestedNames finds requested resources by their devices.
type requestedNames struct {
	devices map[deviceID]map[string]bool // the paths of each
	others  map[types.ResourceName]bool  // resources of no device
}

func newRequestedNames() requestedNames {
	return requestedNames{devices: map[deviceID]map[string]bool{}, others: map[types.ResourceName]bool{}}
}

// add adds the names of the list.
func (r requestedNames) add(list types.ResourceList) {
	for name := range list {
		path, id, isDevice := identify(name)
		switch {
		case !isDevice:
			r.others[name] = true
		case r.devices[id] == nil:
			r.devices[id] = map[string]bool{path.Device(): true}
		default:
			r.devices[id][path.Device()] = true
		}
	}
}

// currentNames returns the names that the resource has if its device is one of those that are
// requested.
func (r requestedNames) currentNames(name types.ResourceName) []types.ResourceName {
	path, id, isDevice := identify(name)
	if !isDevice {
		if r.others[name] {
			return []types.ResourceName{name}
		}
		return nil
	}
	var names []types.ResourceName
	for device := range r.devices[id] {
		names = append(names, types.ResourceName(types.DeviceGroupPrefix+"/"+device+"/"+path.Resource()))
	}
	return names
}

// identify returns the path of a resource and the identity of its device, if it is of one.
func identify(name types.ResourceName) (path resource.Path, id deviceID, isDevice bool) {
	path, err := resource.ParsePath(name)
	if err != nil || path.Depth() == 0 {
		return path, deviceID{}, false
	}
	return path, deviceID{path.DeviceLevel(), path.DeviceID()}, true
}
