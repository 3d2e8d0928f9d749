// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"

	"github.com/kubedevice/kubedevice/plugins/gpu"
)

// Scheduler is the scheduler side of a GPU plugin. It leaves placement to the group scheduler.
type Scheduler struct {
	name     string
	resource types.ResourceName
	nodes    *catalogue
}

var (
	_ devicescheduler.DeviceScheduler = (*Scheduler)(nil)
	_ devicescheduler.ConcurrentSafe  = (*Scheduler)(nil)
	_ devicescheduler.ResourceClaimer = (*Scheduler)(nil)
	_ devicescheduler.DeviceCounter   = (*Scheduler)(nil)
	_ devicescheduler.Describer       = (*Scheduler)(nil)
	_ devicescheduler.Translator      = (*Scheduler)(nil)
	_ devicescheduler.Specialist      = (*Scheduler)(nil)
	_ devicescheduler.Patient         = (*Scheduler)(nil)
	_ devicescheduler.Preferring      = (*Scheduler)(nil)
	_ devicescheduler.Translating     = (*Scheduler)(nil)
)

// New returns the scheduler for GPUs that are counted as that resource.
func New(name string, resource types.ResourceName) *Scheduler {
	return &Scheduler{name: name, resource: resource, nodes: newCatalogue()}
}

// GetName returns the plugin's name.
func (s *Scheduler) GetName() string { return s.name }

// UsingGroupScheduler is true: GPUs are placed and accounted for by the group scheduler.
func (s *Scheduler) UsingGroupScheduler() bool { return true }

// ConcurrentSafe is true: what the methods share is guarded.
func (s *Scheduler) ConcurrentSafe() bool { return true }

// ClaimedResources makes every pod that requests one of the counts a device pod, also while no node
// lists it.
func (s *Scheduler) ClaimedResources() []types.ResourceName {
	claimed := []types.ResourceName{s.resource}
	for _, profile := range s.profiles() {
		claimed = append(claimed, gpu.PlainCount(profile))
	}
	return claimed
}

// CountedDevices says that the count is of cards: memory is a part of a GPU. Instances are counted
// by their profiles, or in the place of GPUs.
func (s *Scheduler) CountedDevices() []devicescheduler.CountedDevice {
	list := []devicescheduler.CountedDevice{
		{Plain: s.resource, Level: gpu.Level, Resource: gpu.Cards},
		{Plain: s.resource, Level: gpu.ComputeLevel, Resource: gpu.Cards},
	}
	for _, profile := range s.profiles() {
		list = append(list, devicescheduler.CountedDevice{
			Plain: gpu.PlainCount(profile), Level: gpu.ComputeLevel, Resource: profile,
		})
	}
	return list
}

// Revision grows when a kind of topology comes or goes: only then may the translation of counted
// GPUs change. Besides it depends on the number of GPUs that the node has.
func (s *Scheduler) Revision() uint64 { return s.nodes.revision() }

// Kinds are GPUs and their instances, by their counts and by the levels of their names.
func (s *Scheduler) Kinds() devicescheduler.Kinds {
	return devicescheduler.Kinds{
		Plain: s.ClaimedResources(), Levels: levels, Options: []types.ResourceName{generateTopology},
		Topology: []types.ResourceName{generateTopology},
	}
}

// Words are the words for a GPU and for the groups of GPUs.
func (s *Scheduler) Words() devicescheduler.Words {
	return devicescheduler.Words{
		Levels: map[string]devicescheduler.Noun{
			gpu.Level: {One: "GPU", Many: "GPUs"},
			gpu.Close: {One: "NVLink or PCIe group", Many: "NVLink or PCIe groups"},
			gpu.Wide:  {One: "group of connected GPUs", Many: "groups of connected GPUs"},

			gpu.InstanceLevel: {One: "GPU instance", Many: "GPU instances"},
			gpu.ComputeLevel:  {One: "MIG instance", Many: "MIG instances"},
		},
		Units: map[string]devicescheduler.Unit{gpu.Level + "/" + gpu.Memory: devicescheduler.Bytes},
	}
}

// AddNode lifts the node's GPUs to two levels of groups, and records their topology.
func (s *Scheduler) AddNode(nodeName string, nodeInfo *types.NodeInfo) {
	liftNode(nodeInfo, s.resource)
	s.nodes.set(nodeName, topologyOf(nodeInfo))
}

// RemoveNode forgets the node's topology.
func (s *Scheduler) RemoveNode(nodeName string) { s.nodes.remove(nodeName) }

// PodFitsDevice translates the pod's requests, in a cluster that requires topology. It refuses a
// container that counts more GPUs than the node has, and one whose requests are invalid; the group
// scheduler decides the rest.
func (s *Scheduler) PodFitsDevice(
	nodeInfo *types.NodeInfo, podInfo *types.PodInfo, _ bool,
) (bool, []devicescheduler.PredicateFailureReason, float64) {
	return s.fits(s.PodAllocate(nodeInfo, podInfo))
}

// fits returns the answer to PodFitsDevice for the error of a translation.
func (s *Scheduler) fits(err error) (bool, []devicescheduler.PredicateFailureReason, float64) {
	if err != nil {
		return false, []devicescheduler.PredicateFailureReason{reason{error: err, resource: s.resource}}, 0
	}
	return true, nil, 0
}

// PodAllocate translates the pod's requests.
func (s *Scheduler) PodAllocate(nodeInfo *types.NodeInfo, podInfo *types.PodInfo) error {
	return s.translate(nodeInfo, podInfo, requires)
}

// TakePodResources separates pods that have a GPU for themselves from pods that share one. The
// group scheduler by itself would allocate the card of a GPU whose memory is shared, and memory of
// a GPU whose card is held. So a pod that shares a GPU uses its card too, and a pod that holds the
// card uses all its memory and cores.
func (s *Scheduler) TakePodResources(nodeInfo *types.NodeInfo, podInfo *types.PodInfo) error {
	for name, quantity := range counterparts(nodeInfo, podInfo) {
		nodeInfo.Used[name] += quantity
	}
	return nil
}

// ReturnPodResources undoes TakePodResources.
func (s *Scheduler) ReturnPodResources(nodeInfo *types.NodeInfo, podInfo *types.PodInfo) error {
	for name, quantity := range counterparts(nodeInfo, podInfo) {
		nodeInfo.Used[name] -= quantity
	}
	return nil
}

// counterparts returns, for each GPU of which the pod holds memory or cores without the card, the
// card; and for a GPU whose card the pod holds, what the pod does not hold of memory and cores.
func counterparts(nodeInfo *types.NodeInfo, podInfo *types.PodInfo) types.ResourceList {
	held := map[types.ResourceName]int64{}
	for _, container := range podInfo.RunningContainers {
		for request, name := range container.AllocateFrom {
			held[name] += max(0, container.DevRequests[request])
		}
	}
	for _, container := range podInfo.InitContainers {
		for request, name := range container.AllocateFrom {
			held[name] = max(held[name], container.DevRequests[request])
		}
	}
	others := types.ResourceList{}
	for name := range held {
		_, kind, ok := gpu.Split(name)
		if !ok {
			continue
		}
		device := name[:len(name)-len(kind)]
		kinds := []types.ResourceName{gpu.Cards}
		if kind == gpu.Cards {
			kinds = []types.ResourceName{gpu.Memory, gpu.Cores}
		}
		for _, other := range kinds {
			own := held[device+other]
			if quantity := nodeInfo.Allocatable[device+other]; quantity > own {
				others[device+other] = quantity - own
			}
		}
	}
	return others
}

// reason is an error as a PredicateFailureReason.
type reason struct {
	error
	resource types.ResourceName
}

// GetReason returns a text that is the same on all nodes which refuse the pod for this.
func (r reason) GetReason() string { return "cannot serve " + r.Error() }

// GetInfo returns the resource; the quantities are in the text.
func (r reason) GetInfo() (name types.ResourceName, requested, used, capacity int64) {
	return r.resource, 0, 0, 0
}
