// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletplugin

import (
	"errors"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/scheduler/dispatch"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Scheduler is the device scheduler for the devices of kubelet device plugins. It is safe for
// concurrent use.
type Scheduler struct {
	// containers are those of the pods that it is asked about. One that they do not list is a
	// regular container, or a last init container.
	containers []grouptree.Container
}

var (
	_ dispatch.Allocator             = (*Scheduler)(nil)
	_ devicescheduler.Pure           = (*Scheduler)(nil)
	_ devicescheduler.Describer      = (*Scheduler)(nil)
	_ devicescheduler.ConcurrentSafe = (*Scheduler)(nil)
)

// New returns a scheduler, which keeps nothing of nodes.
func New() *Scheduler { return &Scheduler{} }

// ForContainers returns the scheduler for pods with these containers, in the order of their spec.
func (*Scheduler) ForContainers(containers []grouptree.Container) devicescheduler.DeviceScheduler {
	return &Scheduler{containers}
}

// GetName returns "kubelet-device-plugins".
func (*Scheduler) GetName() string { return "kubelet-device-plugins" }

// UsingGroupScheduler is true: the group scheduler accounts for the devices.
func (*Scheduler) UsingGroupScheduler() bool { return true }

// ConcurrentSafe is true.
func (*Scheduler) ConcurrentSafe() bool { return true }

// Pure is true: an allocation depends on the node's state and the request alone.
func (*Scheduler) Pure() bool { return true }

// Kinds returns the level of the devices. Publishes knows the plain names.
func (*Scheduler) Kinds() devicescheduler.Kinds {
	return devicescheduler.Kinds{Levels: []string{kubeletdevice.Level}}
}

// Allocates reports whether a name is that of a device, or of a request for one.
func (*Scheduler) Allocates(name types.ResourceName) (counted types.ResourceName, ok bool) {
	counted, _, _, ok = kubeletdevice.ParseRequest(name)
	return counted, ok
}

// Publishes returns the resources of which the node has devices.
func (*Scheduler) Publishes(node *types.NodeInfo) map[types.ResourceName]bool {
	return newPool(node).resources()
}

// CountedAs returns the resource whose devices a request is for, one or several.
func (*Scheduler) CountedAs(request types.ResourceName) (types.ResourceName, bool) {
	if extended, _, _, ok := kubeletdevice.ParseRequest(request); ok {
		return extended, true
	}
	extended, _, _, ok := parseSeveral(request)
	return extended, ok
}

// Words returns the word for an instance of the level.
func (*Scheduler) Words() devicescheduler.Words {
	noun := devicescheduler.Noun{One: "NUMA node", Many: "NUMA nodes"}
	return devicescheduler.Words{Levels: map[string]devicescheduler.Noun{kubeletdevice.Level: noun}}
}

// AddNode does nothing: what a node has comes with each call.
func (*Scheduler) AddNode(string, *types.NodeInfo) {}

// RemoveNode does nothing.
func (*Scheduler) RemoveNode(string) {}

// PodFitsDevice allocates devices of a node to a pod: it writes DevRequests and AllocateFrom into
// the pod's containers, and removes from KubeRequests the counts that these serve. The score is 0
// for a pod that requests none of the node's devices. The text of a reason follows on a number of
// nodes.
func (s *Scheduler) PodFitsDevice(nodeInfo *types.NodeInfo, podInfo *types.PodInfo, _ bool) (
	bool, []devicescheduler.PredicateFailureReason, float64,
) {
	score, err := s.allocate(nodeInfo, podInfo)
	if err != nil {
		unused := *nodeInfo
		unused.Used = nil
		_, whenUnused := s.run(&unused, podInfo)
		unresolvable := whenUnused != nil && !errors.Is(whenUnused, errGivenUp)
		return false, []devicescheduler.PredicateFailureReason{reason{err, unresolvable}}, 0
	}
	return true, nil, score
}

// PodAllocate allocates like PodFitsDevice.
func (s *Scheduler) PodAllocate(nodeInfo *types.NodeInfo, podInfo *types.PodInfo) error {
	_, err := s.allocate(nodeInfo, podInfo)
	return err
}

// allocate writes an allocation into the pod and returns its score.
func (s *Scheduler) allocate(node *types.NodeInfo, pod *types.PodInfo) (float64, error) {
	a, err := s.run(node, pod)
	if err != nil || a.empty() {
		return 0, err
	}
	a.write(pod)
	return a.score(), nil
}

// run returns an allocation of a node's devices to a pod, or why there is none.
func (s *Scheduler) run(node *types.NodeInfo, pod *types.PodInfo) (*allocation, error) {
	a, err := newAllocation(node, pod, s.containers)
	if err == nil && !a.empty() {
		err = a.run()
	}
	return a, err
}

// TakePodResources does nothing: the group scheduler accounts for the devices.
func (*Scheduler) TakePodResources(*types.NodeInfo, *types.PodInfo) error { return nil }

// ReturnPodResources does nothing: the group scheduler accounts for the devices.
func (*Scheduler) ReturnPodResources(*types.NodeInfo, *types.PodInfo) error { return nil }

// reason is why a pod does not fit.
type reason struct {
	error
	unresolvable bool
}

var _ dispatch.Unresolvable = reason{}

// GetReason returns the error's text.
func (r reason) GetReason() string { return r.Error() }

// GetInfo returns nothing: the text has resources and quantities.
func (reason) GetInfo() (name types.ResourceName, requested, used, capacity int64) {
	return "", 0, 0, 0
}

// Unresolvable reports whether the pod would not fit if no other pod held a device of the node
// either.
func (r reason) Unresolvable() bool { return r.unresolvable }
