// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletplugin

import (
	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Scheduler is the device scheduler for the devices of kubelet device plugins. It is safe for
// concurrent use. It takes each container for a regular one or for a last init container, see
// ReadPod.
type Scheduler struct{}

var (
	_ allocation.Allocator           = (*Scheduler)(nil)
	_ devicescheduler.Pure           = (*Scheduler)(nil)
	_ devicescheduler.Describer      = (*Scheduler)(nil)
	_ devicescheduler.ConcurrentSafe = (*Scheduler)(nil)
)

// New returns a scheduler. It keeps no state of nodes.
func New() *Scheduler { return &Scheduler{} }

// Read returns the devices of a node, healthy or not.
func (*Scheduler) Read(node *types.NodeInfo) allocation.NodeDevices { return readDevices(node) }

// ReadPod returns the request of a pod. It takes a container that is not in the list for a regular
// one, or for a last init container.
func (*Scheduler) ReadPod(pod *types.PodInfo, containers []grouptree.Container) allocation.PodDevices {
	return readRequest(pod, containers)
}

// ForPod returns the scheduler for one call: for a pod with this request, on a node with these
// devices. The call reads what is nil. It inspects at most this number of devices; 0 stands for the
// limit of any call.
func (*Scheduler) ForPod(
	pod allocation.PodDevices, nodeDevices allocation.NodeDevices, inspections int,
) allocation.Allocation {
	request, _ := pod.(*podRequest)
	known, _ := nodeDevices.(*devices)
	return newCall(request, known, inspections)
}

// GetName returns "kubelet-device-plugins".
func (*Scheduler) GetName() string { return "kubelet-device-plugins" }

// UsingGroupScheduler is true: the group scheduler accounts for the devices.
func (*Scheduler) UsingGroupScheduler() bool { return true }

// ConcurrentSafe is true.
func (*Scheduler) ConcurrentSafe() bool { return true }

// Pure is true: an allocation depends on the node's state and the request alone.
func (*Scheduler) Pure() bool { return true }

// Kinds returns the level of the devices. Read knows the plain names. There are no options.
func (*Scheduler) Kinds() devicescheduler.Kinds {
	return devicescheduler.Kinds{Levels: []string{kubeletdevice.Level}, Options: []types.ResourceName{}}
}

// Allocates reports whether a name is the name of a device, or of a request for one.
func (*Scheduler) Allocates(name types.ResourceName) (counted types.ResourceName, ok bool) {
	counted, _, _, ok = kubeletdevice.ParseRequest(name)
	return counted, ok
}

// CountedAs returns the resource whose devices a request names, for one device or several.
func (*Scheduler) CountedAs(request types.ResourceName) (types.ResourceName, bool) {
	selected, ok, _ := kubeletdevice.ParseSelection(request, 1)
	return selected.Resource, ok
}

// Words returns the display names for an instance of the level.
func (*Scheduler) Words() devicescheduler.Words {
	name := devicescheduler.Noun{One: "NUMA node", Many: "NUMA nodes"}
	return devicescheduler.Words{Levels: map[string]devicescheduler.Noun{kubeletdevice.Level: name}}
}

// AddNode does nothing: each call gets the node.
func (*Scheduler) AddNode(string, *types.NodeInfo) {}

// RemoveNode does nothing.
func (*Scheduler) RemoveNode(string) {}

// PodFitsDevice allocates devices of a node to a pod: it writes DevRequests and AllocateFrom into
// the pod's containers, and removes from KubeRequests the counts that these serve. The score is 0
// for a pod that requests none of the node's devices. The text of a reason is a predicate whose
// subject is a number of nodes.
func (*Scheduler) PodFitsDevice(nodeInfo *types.NodeInfo, podInfo *types.PodInfo, fill bool) (
	bool, []devicescheduler.PredicateFailureReason, float64,
) {
	return newCall(nil, nil, 0).PodFitsDevice(nodeInfo, podInfo, fill)
}

// PodAllocate allocates like PodFitsDevice.
func (*Scheduler) PodAllocate(nodeInfo *types.NodeInfo, podInfo *types.PodInfo) error {
	return newCall(nil, nil, 0).PodAllocate(nodeInfo, podInfo)
}

// TakePodResources does nothing: the group scheduler accounts for the devices.
func (*Scheduler) TakePodResources(*types.NodeInfo, *types.PodInfo) error { return nil }

// ReturnPodResources does nothing: the group scheduler accounts for the devices.
func (*Scheduler) ReturnPodResources(*types.NodeInfo, *types.PodInfo) error { return nil }
