// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import (
	"cmp"

	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Cause classifies the reason why a request does not fit.
type Cause int8

// The causes, from the plainest to the least specific.
const (
	// Missing: the node has no such level, or no such resource on any instance of the level.
	Missing Cause = iota
	// Gone: an earlier allocation names a resource that the node does not have there.
	Gone
	// Small: no single device has the needed quantity, free or not.
	Small
	// Insufficient: no single device, no single group, or not the node as a whole has the needed
	// quantity free.
	Insufficient
	// InsufficientGroups: too few groups have the needed quantity free.
	InsufficientGroups
	// Fragmented: the node has enough of each resource free, but not in one place.
	Fragmented
	// Unknown: the search reached one of its limits.
	Unknown
)

// Reason says why a request does not fit a node. Its quantities are in base units.
type Reason struct {
	Cause Cause
	// Container is the container with the request.
	Container string
	// Request is the request without a resource, or the first of them.
	Request types.ResourceName
	// Level is the level of the inspected instances, such as gpugrp0; empty for the node as a
	// whole.
	Level string
	// Device and Resource are the last level and the last segment of the request: gpu and memory.
	Device, Resource string
	// Countable says that the devices have at most one of the resource each: the pod needs devices.
	Countable bool
	// Mask says that Needed is a bit mask.
	Mask bool
	// Groups is the needed number of groups of the level, and Placeable the number that fits, for
	// InsufficientGroups.
	Groups, Placeable int64
	// Needed is the needed quantity, in one instance of the level.
	Needed int64
	// Best and Of are the free and the total quantity of the instance of the level with the most
	// free. For Small, Of is the quantity of the largest, and Best is 0.
	Best, Total int64
	// Free and Capacity are the free and the total quantity of the node.
	Free, Capacity int64
	// Steps is the number of steps of the stopped search, for Unknown. TimedOut says that it
	// stopped at its time limit; then Steps is 0.
	Steps    int
	TimedOut bool
}

var _ devicescheduler.PredicateFailureReason = (*Reason)(nil)

// GetReason returns the text of the reason, without the names of the node and its devices.
func (r *Reason) GetReason() string { return r.String() }

// GetInfo returns the request, with the needed, used and total quantities of the node.
func (r *Reason) GetInfo() (name types.ResourceName, requested, used, capacity int64) {
	return r.Request, r.Needed, r.Capacity - r.Free, r.Capacity
}

// Kind returns the reason without the values that differ between nodes that lack the same resource:
// the texts of reasons of equal kind differ only in the quantities of the nodes.
func (r *Reason) Kind() Reason {
	kind := *r
	kind.Request, kind.Placeable, kind.Best, kind.Total, kind.Free, kind.Capacity = "", 0, 0, 0, 0, 0
	if kind.Cause != Fragmented {
		kind.Container = ""
	}
	return kind
}

// Nearer reports whether the node of this reason is nearer to the need than the node of another
// reason of the same kind. Of two reasons with different texts exactly one is nearer.
func (r *Reason) Nearer(other *Reason) bool {
	return cmp.Or(cmp.Compare(r.Placeable, other.Placeable), cmp.Compare(r.Best, other.Best),
		cmp.Compare(r.Total, other.Total)) > 0
}
