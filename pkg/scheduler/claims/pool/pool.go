// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"cmp"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/ptr"
)

// State is whether devices of a pool may be allocated.
type State int

// The states.
const (
	// Complete is a pool of which all slices are known.
	Complete State = iota
	// Incomplete is a pool of which the driver is publishing slices.
	Incomplete
	// Invalid is a pool that has two devices of one name.
	Invalid
)

// ID names a pool.
type ID struct{ Driver, Pool string }

// String returns the name as messages have it.
func (id ID) String() string { return id.Driver + "/" + id.Pool }

// Pool is a pool of devices, as far as it concerns one node.
type Pool struct {
	ID    ID
	State State
	// NotModelled names the feature because of which only upstream's allocator can allocate devices
	// of this pool; "" for none.
	NotModelled string
	// Devices are those that the node can reach, in the order in which upstream's allocator tries
	// them. None if the pool is not complete.
	Devices []*Device
}

// Device is a device that a node can reach. It is read only.
type Device struct {
	ID structured.DeviceID
	// Index is the device's position in Node.Devices.
	Index int
	Pool  *Pool
	Slice *resourceapi.ResourceSlice
	Spec  *resourceapi.Device
}

// Driver returns the name of the device's driver.
func (d *Device) Driver() string { return d.Slice.Spec.Driver }

// Node is what one node can reach. It is read only and safe for concurrent use.
type Node struct {
	// Pools are sorted by driver and name.
	Pools []*Pool
	// Devices are those of all pools, in the order of these.
	Devices []*Device
	// Memo keeps what others compute from the devices.
	Memo Memo
}

// Features that a pool may have and that are not modelled.
const (
	sharedCounters     = "shared counters"
	consumableCapacity = "consumable capacity"
	bindingConditions  = "binding conditions"
	nodeAllocatable    = "resources of the node"
)

// notModelled returns the feature of a slice that is not modelled, or "".
func notModelled(slice *resourceapi.ResourceSlice) string {
	if len(slice.Spec.SharedCounters) > 0 {
		return sharedCounters
	}
	for i := range slice.Spec.Devices {
		device := &slice.Spec.Devices[i]
		switch {
		case len(device.ConsumesCounters) > 0:
			return sharedCounters
		case ptr.Deref(device.AllowMultipleAllocations, false):
			return consumableCapacity
		case len(device.BindingConditions) > 0:
			return bindingConditions
		case len(device.NodeAllocatableResources) > 0:
			return nodeAllocatable
		}
		for _, capacity := range device.Capacity {
			if capacity.RequestPolicy != nil {
				return consumableCapacity
			}
		}
	}
	return ""
}

// place is how a slice or a device says on which nodes it is.
type place struct {
	nodeName string
	allNodes bool
	selector *v1.NodeSelector
}

func placeOfSlice(slice *resourceapi.ResourceSlice) place {
	return place{ptr.Deref(slice.Spec.NodeName, ""), ptr.Deref(slice.Spec.AllNodes, false), slice.Spec.NodeSelector}
}

func placeOfDevice(device *resourceapi.Device) place {
	return place{ptr.Deref(device.NodeName, ""), ptr.Deref(device.AllNodes, false), device.NodeSelector}
}

// stated reports whether anything is said.
func (p place) stated() bool { return p.nodeName != "" || p.allNodes || p.selector != nil }

// includes reports whether a node is one of them.
func (p place) includes(node *v1.Node) (bool, error) {
	switch {
	case p.nodeName != "":
		return p.nodeName == node.Name, nil
	case p.allNodes:
		return true, nil
	case p.selector != nil:
		selector, err := nodeaffinity.NewNodeSelector(p.selector)
		if err != nil {
			return false, fmt.Errorf("parse the node selector %s: %w", p.selector, err)
		}
		return selector.Match(node), nil
	}
	return false, nil
}

// reaches reports whether a node reaches a device of the slice.
func reaches(node *v1.Node, slice *resourceapi.ResourceSlice) (bool, error) {
	if at := placeOfSlice(slice); at.stated() {
		return at.includes(node)
	}
	if !ptr.Deref(slice.Spec.PerDeviceNodeSelection, false) {
		return false, nil // a way of a later release, which upstream leaves out as well
	}
	for i := range slice.Spec.Devices {
		if found, err := placeOfDevice(&slice.Spec.Devices[i]).includes(node); found || err != nil {
			return found, err
		}
	}
	return false, nil
}

// idOf returns the pool of a slice.
func idOf(slice *resourceapi.ResourceSlice) ID { return ID{slice.Spec.Driver, slice.Spec.Pool.Name} }

// newPool returns a pool from those of its slices that the node reaches, which have one generation,
// and from all of its slices in the cluster. It returns nil for a pool that is being replaced.
func newPool(id ID, reached, all []*resourceapi.ResourceSlice, node *v1.Node) (*Pool, error) {
	pool, current := &Pool{ID: id}, reached[0].Spec.Pool
	known := 0
	for _, slice := range all {
		switch {
		case slice.Spec.Pool.Generation > current.Generation && int64(len(reached)) != current.ResourceSliceCount:
			return nil, nil
		case slice.Spec.Pool.Generation == current.Generation:
			known++
			if pool.NotModelled == "" {
				pool.NotModelled = notModelled(slice)
			}
		}
	}
	if int64(len(reached)) != current.ResourceSliceCount && int64(known) != current.ResourceSliceCount {
		pool.State = Incomplete
		return pool, nil
	}
	slices.SortFunc(reached, func(a, b *resourceapi.ResourceSlice) int { return cmp.Compare(a.Name, b.Name) })
	names := map[string]struct{}{}
	for _, slice := range reached {
		for i := range slice.Spec.Devices {
			device := &slice.Spec.Devices[i]
			if _, twice := names[device.Name]; twice {
				return &Pool{ID: id, State: Invalid, NotModelled: pool.NotModelled}, nil
			}
			names[device.Name] = struct{}{}
			if ptr.Deref(slice.Spec.PerDeviceNodeSelection, false) {
				if found, err := placeOfDevice(device).includes(node); err != nil {
					return nil, err
				} else if !found {
					continue
				}
			}
			pool.Devices = append(pool.Devices, &Device{
				ID:   structured.MakeDeviceID(id.Driver, id.Pool, device.Name),
				Pool: pool, Slice: slice, Spec: device,
			})
		}
	}
	return pool, nil
}
