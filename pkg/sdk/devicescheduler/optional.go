// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicescheduler

import "github.com/kubedevice/kubedevice/pkg/sdk/types"

// ConcurrentSafe is implemented by a plugin whose methods may be called from several goroutines at
// once. Without it the host serialises the calls.
type ConcurrentSafe interface {
	// ConcurrentSafe reports whether that holds. It is asked once, when the plugin is loaded.
	ConcurrentSafe() bool
}

// Pure is implemented by a plugin whose PodFitsDevice, PodAllocate and TakePodResources depend on
// nothing but their arguments: the answer for a node in some state may then be remembered and used
// for every node in that state. A plugin that looks at other nodes, at a clock or at the names of
// the node and the pod must not declare it.
type Pure interface {
	// Pure reports whether that holds. It is asked once, when the plugin is loaded.
	Pure() bool
}

// Translator is implemented by a plugin that leaves placement to the group scheduler and only
// translates requests. Its PodFitsDevice and PodAllocate depend on podInfo, except for the names in
// it; on the device resources of nodeInfo.Allocatable, whatever their instances are called; and on
// the nodes that the plugin was told of by AddNode and RemoveNode. What is used on the node does
// not matter to them: the answer for one node is then that for all nodes which are built alike, and
// is remembered. What its TakePodResources adds for a pod depends on podInfo and on
// nodeInfo.Allocatable, not on what is used either: it is asked once for each pod, with Used empty,
// and added up.
type Translator interface {
	// Revision grows whenever a node that came, changed or went has changed how the plugin
	// translates. It is asked when the plugin is loaded and after each AddNode and RemoveNode; pods
	// that wait are then tried again.
	Revision() uint64
}

// ResourceClaimer is implemented by a plugin that serves plain resource names which no node needs
// to advertise: a pod that requests one of them is a device pod.
type ResourceClaimer interface {
	// ClaimedResources returns the names. It is asked once, when the plugin is loaded.
	ClaimedResources() []types.ResourceName
}

// PodObserver is implemented by a plugin that keeps counters of its own. It is told of each pod
// once, by UID, and never in a simulation.
type PodObserver interface {
	// PodHolds tells that the pod's allocation on the node is final. podInfo is the call's own
	// copy.
	PodHolds(nodeName, podUID string, podInfo *types.PodInfo)
	// PodGone tells that the pod no longer holds anything.
	PodGone(nodeName, podUID string)
}
