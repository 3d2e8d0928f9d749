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

// Scheduler is the device scheduler for hosted devices. It is safe for concurrent use.
type Scheduler struct{ nodes catalogue }

var (
	_ dispatch.Chooser               = (*Scheduler)(nil)
	_ devicescheduler.Pure           = (*Scheduler)(nil)
	_ devicescheduler.Describer      = (*Scheduler)(nil)
	_ devicescheduler.ConcurrentSafe = (*Scheduler)(nil)
)

// New returns a scheduler that knows of no node.
func New() *Scheduler { return &Scheduler{} }

// GetName returns "hosted".
func (*Scheduler) GetName() string { return "hosted" }

// UsingGroupScheduler is true: it accounts for the devices.
func (*Scheduler) UsingGroupScheduler() bool { return true }

// ConcurrentSafe is true: what the methods share is guarded.
func (*Scheduler) ConcurrentSafe() bool { return true }

// Pure is true: devices are chosen by the node's state and by the request alone.
func (*Scheduler) Pure() bool { return true }

// Kinds are the devices of the level that hosted devices stand below. Serves has the plain names.
func (*Scheduler) Kinds() devicescheduler.Kinds {
	return devicescheduler.Kinds{Levels: []string{kubeletdevice.Level}}
}

// Serves reports whether some node hosts the plain resource.
func (s *Scheduler) Serves(name types.ResourceName) bool { return s.nodes.has(name) }

// Revision grows whenever Serves changes.
func (s *Scheduler) Revision() uint64 { return s.nodes.revision.Load() }

// Words says NUMA node for one.
func (*Scheduler) Words() devicescheduler.Words {
	return devicescheduler.Words{Levels: map[string]devicescheduler.Noun{kubeletdevice.Level: {One: "NUMA node", Many: "NUMA nodes"}}}
}

// AddNode learns which resources the node hosts. It changes nothing of it.
func (s *Scheduler) AddNode(nodeName string, nodeInfo *types.NodeInfo) {
	s.nodes.set(nodeName, takeStock(nodeInfo).resources())
}

// RemoveNode forgets the node.
func (s *Scheduler) RemoveNode(nodeName string) { s.nodes.set(nodeName, nil) }

// PodFitsDevice is Choose for a pod that has no sidecars.
func (s *Scheduler) PodFitsDevice(nodeInfo *types.NodeInfo, podInfo *types.PodInfo, _ bool) (bool, []devicescheduler.PredicateFailureReason, float64) {
	score, err := s.Choose(nodeInfo, podInfo, nil)
	if err != nil {
		return false, []devicescheduler.PredicateFailureReason{reason{err}}, 0
	}
	return true, nil, score
}

// PodAllocate is Choose for a pod that has no sidecars.
func (s *Scheduler) PodAllocate(nodeInfo *types.NodeInfo, podInfo *types.PodInfo) error {
	_, err := s.Choose(nodeInfo, podInfo, nil)
	return err
}

// TakePodResources leaves the accounting to the group scheduler.
func (*Scheduler) TakePodResources(*types.NodeInfo, *types.PodInfo) error { return nil }

// ReturnPodResources leaves the accounting to the group scheduler.
func (*Scheduler) ReturnPodResources(*types.NodeInfo, *types.PodInfo) error { return nil }

// Choose chooses the hosted devices of a pod on a node, and writes them into DevRequests and AllocateFrom of its containers.
// The score is from 0 to 1, and 0 for a pod that asks this node for no hosted device. spec lists the pod's containers in the
// order of its spec; one that it does not name is a regular one, or a last init container. The error says why the pod does
// not fit, as a text that follows on a number of nodes; it is a [dispatch.NeverError] if evicting pods would not help.
func (*Scheduler) Choose(node *types.NodeInfo, pod *types.PodInfo, spec []grouptree.Container) (float64, error) {
	c, err := newChooser(node, pod, spec)
	if err != nil {
		return 0, dispatch.NeverError{Reason: err}
	}
	if c.nothing() {
		return 0, nil
	}
	if err := c.choose(); err != nil {
		if fitsNever(node, pod, spec) {
			err = dispatch.NeverError{Reason: err}
		}
		return 0, err
	}
	c.write(pod)
	return c.score(), nil
}

// fitsNever reports whether the pod would not fit the node if no other pod held anything of it.
func fitsNever(node *types.NodeInfo, pod *types.PodInfo, spec []grouptree.Container) bool {
	empty := *node
	empty.Used = nil
	c, err := newChooser(&empty, pod, spec)
	if err == nil {
		err = c.choose()
	}
	return err != nil && !errors.Is(err, errGivenUp)
}
