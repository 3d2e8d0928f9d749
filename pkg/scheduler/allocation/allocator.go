// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Allocator is implemented by a device scheduler that allocates its devices by itself and uses the
// group scheduler for their accounting only. PodFitsDevice and PodAllocate write DevRequests and
// AllocateFrom, and remove from KubeRequests the counts that these serve, so that no later plugin
// serves them again. The group scheduler checks the allocation. The allocator's score counts
// together with the group scheduler's, unless it is 0: then it has nothing to do with the pod on
// this node.
//
// For the sake of allocators alone, the group scheduler has nothing to do with the devices of
// others.
type Allocator interface {
	devicescheduler.Specialist
	// Read reads a node's devices, once for each inventory. It depends on nothing but the node.
	Read(node *types.NodeInfo) NodeDevices
	// ReadPod reads what a pod requests, once for all nodes that count the same resources as
	// devices. The containers are in the order of the pod's spec: they say which of them run at the
	// same time, and the methods' arguments do not. The pod must not change afterwards.
	ReadPod(pod *types.PodInfo, containers []grouptree.Container) PodDevices
	// ForPod returns the scheduler for one call about a pod that requests this. The call is about a
	// node with these devices, and does not change the node. It takes at most so many steps; 0
	// stands for the allocator's own limit.
	ForPod(pod PodDevices, devices NodeDevices, steps int) Allocation
	// Allocates reports whether a device resource, or a request for one, is that of one of its
	// devices, and by which extended resource such devices are counted: one each.
	Allocates(name types.ResourceName) (counted types.ResourceName, ok bool)
	// CountedAs returns the plain resource that counts the devices that a request is for, which the
	// annotation has in its full form. ok is false for requests for other devices.
	CountedAs(request types.ResourceName) (plain types.ResourceName, ok bool)
}

// NodeDevices are the devices that an allocator has on one node, whether they are free or not. They
// are immutable.
type NodeDevices interface {
	// Resources returns the extended resources of which there are devices: pods count them. Callers
	// must not change it.
	Resources() map[types.ResourceName]bool
}

// PodDevices are what an allocator has read of a pod's request. They are immutable.
type PodDevices any

// Allocation is an allocator for one call.
type Allocation interface {
	devicescheduler.DeviceScheduler
	// Spent returns how many steps the call has taken, of the length of grouptree's, beyond what an
	// ordinary request takes on that node. cut says that the limit ended it.
	Spent() (steps int, cut bool)
}

// Unresolvable is implemented by a reason why a pod does not fit a node that may be unresolvable.
type Unresolvable interface {
	// Unresolvable reports whether the pod would not fit if the node were empty either.
	Unresolvable() bool
}
