// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package devicescheduler is what a scheduler plugin implements: fit, score, allocation and
// accounting of one kind of device.
//
// A plugin is a Go program of package main, built with -buildmode=plugin -trimpath, that exports
//
//	func CreateDeviceSchedulerPlugin() (devicescheduler.DeviceScheduler, error)
//
// The host loads the *.so files of --devschedpath in the order of their file names and calls them
// in that order. If any of them uses the group scheduler, the built-in one runs after all of them
// and serves every resource/group request in the pod's DevRequests. A pod fits a node when all
// plugins report that it fits. The host ranks nodes by the mean of the plugins' scores, which is
// the order of their sums. Where the group scheduler places, its score replaces those of the
// plugins that use it.
//
// # What the host promises
//
//   - Calls into one plugin are serialised, unless it implements [ConcurrentSafe].
//   - Every argument is a copy made for that call. A plugin changes what the documentation of the
//     method names and keeps nothing. What else it writes is discarded.
//   - No map of an argument is nil: none of a NodeInfo, none of a PodInfo, none of any of its
//     containers. A plugin may write into each of them without a check. This holds for all methods
//     of DeviceScheduler and of the optional interfaces.
//   - InitContainers and RunningContainers of a PodInfo have an entry for every container of the
//     pod's spec, whether the annotation names the container or not. A pod whose annotation names a
//     container that its spec lacks is refused before any plugin is called.
//   - A panic in a call is recovered and counts as a failure of the plugin. A panic in a goroutine
//     that the plugin starts itself ends the scheduler; the host cannot recover it.
//   - A call that outlives its deadline cannot be stopped. The plugin gets no other call until this
//     one returns.
//
// Abilities beyond DeviceScheduler are optional interfaces that the host finds by type assertion.
package devicescheduler

import "github.com/kubedevice/kubedevice/pkg/sdk/types"

// CreateSymbol is the name under which a scheduler plugin exports its entry point.
const CreateSymbol = "CreateDeviceSchedulerPlugin"

// CreateFunc is the type of a scheduler plugin's entry point. It is called once per process; the
// host first tries each file in a child process, where it is called too.
type CreateFunc = func() (DeviceScheduler, error)

// PredicateFailureReason is a reason why a pod does not fit a node.
type PredicateFailureReason interface {
	// GetReason returns a short text without the node's name, such as "Insufficient
	// nvidia.com/gpu". Reasons of many nodes are grouped by it.
	GetReason() string
	// GetInfo returns the resource that is lacking and its quantities on this node, in base units.
	GetInfo() (name types.ResourceName, requested, used, capacity int64)
}

// DeviceScheduler fits, places and accounts for one kind of device. The package documentation lists
// what holds for the arguments of all methods.
type DeviceScheduler interface {
	// AddNode reports a node to the plugin, once per change of the node's inventory. The plugin may
	// rewrite nodeInfo.Allocatable (for example to lift resources to more levels); the host keeps
	// what it leaves there.
	AddNode(nodeName string, nodeInfo *types.NodeInfo)

	// RemoveNode reports that the node is gone.
	RemoveNode(nodeName string)

	// PodFitsDevice reports whether the pod fits the node, why not, and how well (0 bad to 1 good).
	// nodeInfo.Used holds what the node's pods hold. It may write DevRequests and Scorer into
	// podInfo, and, with fillAllocateFrom, AllocateFrom for the devices that the plugin places by
	// itself. What the plugins before it wrote there stays: add, never replace.
	PodFitsDevice(
		nodeInfo *types.NodeInfo, podInfo *types.PodInfo, fillAllocateFrom bool,
	) (fits bool, reasons []PredicateFailureReason, score float64)

	// PodAllocate writes DevRequests, Scorer and, for the devices that the plugin places by itself,
	// AllocateFrom into podInfo. It is called for the node that was chosen.
	PodAllocate(nodeInfo *types.NodeInfo, podInfo *types.PodInfo) error

	// TakePodResources adds what podInfo holds to nodeInfo.Used, for the devices that the plugin
	// places by itself. The host computes a node's state by calling it for each holder in the order
	// of pod UIDs, on a private copy, any number of times and in simulations too: the same
	// arguments must have the same effect.
	TakePodResources(nodeInfo *types.NodeInfo, podInfo *types.PodInfo) error

	// ReturnPodResources undoes TakePodResources. The host never depends on it being called.
	ReturnPodResources(nodeInfo *types.NodeInfo, podInfo *types.PodInfo) error

	// GetName returns the plugin's name for logs, metrics and events.
	GetName() string

	// UsingGroupScheduler reports whether the plugin leaves placement and accounting of
	// resource/group requests to the built-in group scheduler.
	UsingGroupScheduler() bool
}
