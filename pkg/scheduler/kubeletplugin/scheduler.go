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
type Scheduler struct{ published resources }

var (
	_ dispatch.Chooser               = (*Scheduler)(nil)
	_ devicescheduler.Pure           = (*Scheduler)(nil)
	_ devicescheduler.Describer      = (*Scheduler)(nil)
	_ devicescheduler.ConcurrentSafe = (*Scheduler)(nil)
)

// New returns a scheduler that knows no node.
func New() *Scheduler { return &Scheduler{} }

// GetName returns "hosted".
func (*Scheduler) GetName() string { return "hosted" }

// UsingGroupScheduler is true: the group scheduler accounts for the devices.
func (*Scheduler) UsingGroupScheduler() bool { return true }

// ConcurrentSafe is true.
func (*Scheduler) ConcurrentSafe() bool { return true }

// Pure is true: an allocation depends on the node's state and the request alone.
func (*Scheduler) Pure() bool { return true }

// Kinds returns the level of the devices. Serves knows the plain names.
func (*Scheduler) Kinds() devicescheduler.Kinds {
	return devicescheduler.Kinds{Levels: []string{kubeletdevice.Level}}
}

// Serves reports whether some node publishes devices of a plain resource.
func (s *Scheduler) Serves(name types.ResourceName) bool { return s.published.has(name) }

// Revision grows whenever Serves changes.
func (s *Scheduler) Revision() uint64 { return s.published.revision.Load() }

// Words returns the word for an instance of the level.
func (*Scheduler) Words() devicescheduler.Words {
	noun := devicescheduler.Noun{One: "NUMA node", Many: "NUMA nodes"}
	return devicescheduler.Words{Levels: map[string]devicescheduler.Noun{kubeletdevice.Level: noun}}
}

// AddNode records which resources the node publishes devices of. It does not change nodeInfo.
func (s *Scheduler) AddNode(nodeName string, nodeInfo *types.NodeInfo) {
	s.published.set(nodeName, newPool(nodeInfo).resources())
}

// RemoveNode forgets the node.
func (s *Scheduler) RemoveNode(nodeName string) { s.published.set(nodeName, nil) }

// PodFitsDevice is Choose for a pod without sidecars.
func (s *Scheduler) PodFitsDevice(
	nodeInfo *types.NodeInfo, podInfo *types.PodInfo, _ bool,
) (bool, []devicescheduler.PredicateFailureReason, float64) {
	score, err := s.Choose(nodeInfo, podInfo, nil)
	if err != nil {
		return false, []devicescheduler.PredicateFailureReason{reason{err}}, 0
	}
	return true, nil, score
}

// PodAllocate is Choose for a pod without sidecars.
func (s *Scheduler) PodAllocate(nodeInfo *types.NodeInfo, podInfo *types.PodInfo) error {
	_, err := s.Choose(nodeInfo, podInfo, nil)
	return err
}

// TakePodResources does nothing: the group scheduler accounts for the devices.
func (*Scheduler) TakePodResources(*types.NodeInfo, *types.PodInfo) error { return nil }

// ReturnPodResources does nothing: the group scheduler accounts for the devices.
func (*Scheduler) ReturnPodResources(*types.NodeInfo, *types.PodInfo) error { return nil }

// Choose allocates devices of a node to a pod, and writes them into DevRequests and AllocateFrom of
// its containers. The score is from 0 to 1, and 0 for a pod that requests no device of this node's.
// spec lists the pod's containers in the order of its spec; one that it does not list is a regular
// one, or a last init container. The error says why the pod does not fit, as a text that follows on
// a number of nodes; it is a [dispatch.NeverError] if evicting pods would not help.
func (*Scheduler) Choose(node *types.NodeInfo, pod *types.PodInfo, spec []grouptree.Container) (float64, error) {
	a, err := newAllocation(node, pod, spec)
	if err != nil {
		return 0, dispatch.NeverError{Reason: err}
	}
	if a.empty() {
		return 0, nil
	}
	if err := a.run(); err != nil {
		if !fitsUnused(node, pod, spec) {
			err = dispatch.NeverError{Reason: err}
		}
		return 0, err
	}
	a.write(pod)
	return a.score(), nil
}

// fitsUnused reports whether the pod might fit the node if no other pod held anything of it.
func fitsUnused(node *types.NodeInfo, pod *types.PodInfo, spec []grouptree.Container) bool {
	unused := *node
	unused.Used = nil
	a, err := newAllocation(&unused, pod, spec)
	if err == nil {
		err = a.run()
	}
	return err == nil || errors.Is(err, errGivenUp)
}

// reason is an error as the reason why a pod does not fit.
type reason struct{ error }

// GetReason returns the error's text.
func (r reason) GetReason() string { return r.Error() }

// GetInfo returns nothing: the text has resources and quantities.
func (reason) GetInfo() (name types.ResourceName, requested, used, capacity int64) {
	return "", 0, 0, 0
}
