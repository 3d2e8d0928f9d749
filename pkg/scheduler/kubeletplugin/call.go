// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletplugin

import (
	"errors"

	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// maxInspections is how many devices and holders the searches inspect for one pod on one node: some
// 2 ms. The searches have a step limit as well, but one step on a node with a thousand devices
// takes as long as a hundred steps on a small node.
const maxInspections = 300_000

// call is the scheduler for one call.
type call struct {
	*Scheduler
	request *podRequest // nil until it is read
	devices *devices    // of the node; nil until they are read

	left  int  // inspections that remain
	spent int  // inspections beyond those of an ordinary request
	cut   bool // no inspections were left
}

func newCall(request *podRequest, known *devices, inspections int) *call {
	if inspections <= 0 || inspections > maxInspections {
		inspections = maxInspections
	}
	return &call{Scheduler: New(), request: request, devices: known, left: inspections}
}

// PodFitsDevice implements devicescheduler.DeviceScheduler, like that of Scheduler.
func (c *call) PodFitsDevice(nodeInfo *types.NodeInfo, podInfo *types.PodInfo, _ bool) (
	bool, []devicescheduler.PredicateFailureReason, float64,
) {
	score, err := c.allocate(nodeInfo, podInfo)
	if err != nil {
		whenUnused := err
		if c.devices.anyUsed(nodeInfo.Used) {
			unused := *nodeInfo
			unused.Used = nil
			_, whenUnused = c.run(&unused, podInfo)
		}
		unresolvable := whenUnused != nil && !errors.Is(whenUnused, errSearchStopped)
		return false, []devicescheduler.PredicateFailureReason{reason{err, unresolvable}}, 0
	}
	return true, nil, score
}

// PodAllocate implements devicescheduler.DeviceScheduler, like that of Scheduler.
func (c *call) PodAllocate(nodeInfo *types.NodeInfo, podInfo *types.PodInfo) error {
	_, err := c.allocate(nodeInfo, podInfo)
	return err
}

// Spent returns the number of inspections beyond those of an ordinary request, and whether the
// limit stopped the search.
func (c *call) Spent() (inspections int, cut bool) { return c.spent, c.cut }

// allocate writes an allocation into the pod and returns its score.
func (c *call) allocate(node *types.NodeInfo, pod *types.PodInfo) (float64, error) {
	a, err := c.run(node, pod)
	if err != nil || a.empty() {
		return 0, err
	}
	a.write(pod)
	return a.score(), nil
}

// run returns an allocation of a node's devices to a pod, or the reason why there is none.
func (c *call) run(node *types.NodeInfo, pod *types.PodInfo) (*podAllocation, error) {
	if c.devices == nil {
		c.devices = readDevices(node)
	}
	if c.request == nil {
		c.request = readRequest(pod, nil)
	}
	a, err := newAllocation(c.devices, node.Used, c.request)
	if err != nil || a.empty() {
		return a, err
	}
	a.limit = c.left + a.pool.ordinary()
	err = a.run()
	spent := max(0, a.inspections-a.pool.ordinary())
	c.left, c.spent = max(0, c.left-spent), c.spent+spent
	c.cut = c.cut || a.exhausted() && errors.Is(err, errSearchStopped)
	return a, err
}

// reason says why a pod does not fit.
type reason struct {
	error
	unresolvable bool
}

var _ allocation.Unresolvable = reason{}

// GetReason returns the error's text.
func (r reason) GetReason() string { return r.Error() }

// GetInfo returns nothing: the text has resources and quantities.
func (reason) GetInfo() (name types.ResourceName, requested, used, capacity int64) {
	return "", 0, 0, 0
}

// Unresolvable reports whether the pod does not fit even if no other pod holds a device of the
// node.
func (r reason) Unresolvable() bool { return r.unresolvable }
