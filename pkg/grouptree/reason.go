// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import (
	"fmt"
	"strconv"

	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Cause says what kind of thing stands against a placement.
type Cause int8

// The causes, from the plainest to the least specific.
const (
	// Missing: the node has no such level, or no such resource on any instance of the level.
	Missing Cause = iota
	// Gone: an allocation that was decided before names a resource that the node does not have there.
	Gone
	// Small: no single device has as much as is needed, free or not.
	Small
	// Short: no single device, no single group, or the node as a whole has as much free as is needed.
	Short
	// Few: there are too few groups that have as much free as is needed.
	Few
	// Torn: there is enough free of everything, but not in one place.
	Torn
	// Unknown: the exact search gave up at its step limit.
	Unknown
)

// Reason says why a request does not fit a node. Its quantities are in base units.
type Reason struct {
	Cause Cause
	// Container is the container whose request is concerned.
	Container string
	// Request is the request that is concerned, or the first of those that are.
	Request types.ResourceName
	// Level is the level whose instances were looked at, such as gpugrp0; empty for the node as a whole.
	Level string
	// Device and Resource are the last level and the last segment of the request: gpu and memory.
	Device, Resource string
	// Countable tells that the devices have at most one of the resource each: what is needed is devices.
	Countable bool
	// Mask tells that Needed is a bit mask.
	Mask bool
	// Groups is how many groups of the level are needed, and Rooms for how many of them there is room, for Few.
	Groups, Rooms int64
	// Needed is what is needed, in one instance of the level.
	Needed int64
	// Best and Of are what is free and what there is in that instance of the level which has the most free, or for Small
	// in the largest.
	Best, Of int64
	// Free and Capacity are what is free and what there is on the node.
	Free, Capacity int64
	// Steps is the step limit at which the search gave up, for Unknown.
	Steps int
}

var _ devicescheduler.PredicateFailureReason = (*Reason)(nil)

// GetReason returns the reason in words, without the names of the node and its devices, so that nodes can be grouped by
// it.
func (r *Reason) GetReason() string { return r.String() }

// GetInfo returns the request that is concerned, with what is needed, used and there on the node.
func (r *Reason) GetInfo() (name types.ResourceName, requested, used, capacity int64) {
	return r.Request, r.Needed, r.Capacity - r.Free, r.Capacity
}

// String returns the reason in words.
func (r *Reason) String() string {
	switch r.Cause {
	case Missing:
		if r.Level != "" {
			return fmt.Sprintf("no %s", r.Level)
		}
		return fmt.Sprintf("no %s", r.thing())
	case Gone:
		return fmt.Sprintf("the %s that was allocated before is gone", r.thing())
	case Small:
		return fmt.Sprintf("no %s with %s (the largest has %s)", r.Level, r.amount(), Human(r.Of))
	case Few:
		return fmt.Sprintf("room for %d of %d %s with %s free each", r.Rooms, r.Groups, r.Level, r.amount())
	case Torn:
		if r.Level != "" {
			return fmt.Sprintf("no %s has everything free that is asked of one", r.Level)
		}
		return fmt.Sprintf("the free devices do not form the groups that container %q asks for", r.Container)
	case Unknown:
		return fmt.Sprintf("no placement found within %d steps", r.Steps)
	}
	switch {
	case r.Mask:
		return fmt.Sprintf("no %s with any bit of %#x", r.thing(), r.Needed)
	case r.Level == "" && r.Countable && r.Free == 0:
		return fmt.Sprintf("no free %s (0 free of %d)", r.thing(), r.Capacity)
	case r.Level == "" && r.Countable:
		return fmt.Sprintf("fewer than %d free %s (%d free of %d)", r.Needed, r.thing(), r.Free, r.Capacity)
	case r.Level == "":
		return fmt.Sprintf("less than %s of %s free (%s free of %s)", Human(r.Needed), r.thing(), Human(r.Free), Human(r.Capacity))
	case r.Countable:
		return fmt.Sprintf("fewer than %d free %s in one %s (best: %d free of %d)", r.Needed, r.thing(), r.Level, r.Best, r.Of)
	default:
		return fmt.Sprintf("no %s with %s of %s free (best: %s free of %s)", r.Level, Human(r.Needed), r.inside(), Human(r.Best), Human(r.Of))
	}
}

// thing names what is requested: a device, or a resource of it.
func (r *Reason) thing() string {
	switch {
	case r.Device == "":
		return r.Resource
	case r.Countable:
		return r.Device
	default:
		return r.Device + " " + r.Resource
	}
}

// inside names what is requested, as a part of an instance of the level.
func (r *Reason) inside() string {
	if r.Level == r.Device {
		return r.Resource
	}
	return r.thing()
}

// amount is how much of what is needed.
func (r *Reason) amount() string {
	if r.Countable {
		return fmt.Sprintf("%d %s", r.Needed, r.thing())
	}
	return fmt.Sprintf("%s of %s", Human(r.Needed), r.inside())
}

// Human returns a quantity the way people write it: from 1 MiB on in the largest binary unit that leaves at least 1, as
// such numbers are bytes, with at most one digit after the point.
func Human(quantity int64) string {
	units := []string{"MiB", "GiB", "TiB", "PiB", "EiB"}
	if quantity < 1<<20 {
		return strconv.FormatInt(quantity, 10)
	}
	value, unit := float64(quantity)/(1<<20), 0
	for value >= 1024 && unit < len(units)-1 {
		value, unit = value/1024, unit+1
	}
	return strconv.FormatFloat(float64(int64(value*10))/10, 'f', -1, 64) + units[unit]
}
