// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import (
	"cmp"

	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Cause says what kind of thing stands against a placement.
type Cause int8

// The causes, from the plainest to the least specific.
const (
	// Missing: the node has no such level, or no such resource on any instance of the level.
	Missing Cause = iota
	// Gone: an allocation that was decided before names a resource that the node does not have
	// there.
	Gone
	// Small: no single device has as much as is needed, free or not.
	Small
	// Insufficient: no single device, no single group, or the node as a whole has as much free as
	// is needed.
	Insufficient
	// InsufficientGroups: there are too few groups that have as much free as is needed.
	InsufficientGroups
	// Fragmented: there is enough free of everything, but not in one place.
	Fragmented
	// Unknown: the search gave up at one of its limits.
	Unknown
)

// Reason says why a request does not fit a node. Its quantities are in base units.
type Reason struct {
	Cause Cause
	// Container is the container whose request is concerned.
	Container string
	// Request is the request that is concerned, or the first of those that are.
	Request types.ResourceName
	// Level is the level whose instances were looked at, such as gpugrp0; empty for the node as a
	// whole.
	Level string
	// Device and Resource are the last level and the last segment of the request: gpu and memory.
	Device, Resource string
	// Countable says that the devices have at most one of the resource each: what is needed is
	// devices.
	Countable bool
	// Mask says that Needed is a bit mask.
	Mask bool
	// Groups is how many groups of the level are needed, and Placeable how many of them fit, for
	// InsufficientGroups.
	Groups, Placeable int64
	// Needed is what is needed, in one instance of the level.
	Needed int64
	// Best and Of are what is free and what there is in that instance of the level which has the
	// most free. For Small, Of is what there is in the largest, and Best is 0.
	Best, Of int64
	// Free and Capacity are what is free and what there is on the node.
	Free, Capacity int64
	// Steps is how many steps the search took before it gave up, for Unknown; TimedOut says that it
	// gave up at its limit of time, and Steps is 0.
	Steps    int
	TimedOut bool
}

var _ devicescheduler.PredicateFailureReason = (*Reason)(nil)

// GetReason returns the reason in words, without the names of the node and its devices.
func (r *Reason) GetReason() string { return r.String() }

// GetInfo returns the request that is concerned, with what is needed, used and there on the node.
func (r *Reason) GetInfo() (name types.ResourceName, requested, used, capacity int64) {
	return r.Request, r.Needed, r.Capacity - r.Free, r.Capacity
}

// Kind returns the reason without what differs between nodes that lack the same: reasons of equal
// kind differ in their text by no more than the numbers of what a node has.
func (r *Reason) Kind() Reason {
	kind := *r
	kind.Request, kind.Placeable, kind.Best, kind.Of, kind.Free, kind.Capacity = "", 0, 0, 0, 0, 0
	if kind.Cause != Fragmented {
		kind.Container = ""
	}
	return kind
}

// Nearer reports whether the node of this reason is nearer to what is needed than that of another
// of the same kind. Of reasons with different texts exactly one is nearer.
func (r *Reason) Nearer(than *Reason) bool {
	return cmp.Or(cmp.Compare(r.Placeable, than.Placeable), cmp.Compare(r.Best, than.Best),
		cmp.Compare(r.Of, than.Of)) > 0
}
