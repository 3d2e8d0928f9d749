// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/scheduler/dispatch"
)

// cycle is what the plugin keeps of one pod's scheduling cycle: the request, read once, and what the nodes answer.
type cycle struct {
	request *dispatch.Request
	survey  *survey
	tally   *tally
	leftOut bool // nodes were, see leaveOut
}

const cycleKey fwk.StateKey = Name

// Clone returns a cycle for a simulation, whose answers do not count.
func (c *cycle) Clone() fwk.StateData {
	return &cycle{request: c.request, survey: c.survey, tally: c.tally.simulation()}
}

// inGroup reports whether the pod is one of a pod group, which are scheduled together.
func inGroup(pod *v1.Pod) bool { return pod.Spec.SchedulingGroup != nil }

// find returns the place of a node in the survey, negative for one that is not in the snapshot as it was when the cycle began. The
// snapshot stays as it is, but for the preemption of a pod group, which changes it and asks on for the group's pods.
func (c *cycle) find(pod *v1.Pod, nodeInfo fwk.NodeInfo) (place int) {
	if inGroup(pod) {
		return c.survey.findUnchanged(nodeInfo)
	}
	return c.survey.find(nodeInfo)
}

// latest is the cycle that was begun last, and the state that has it. Filter and Score are asked for one node after the
// other in the same cycle; reading it from the state each time would be most of what they do.
type latest struct {
	state fwk.CycleState
	cycle *cycle
}

// begin makes c the cycle of this state.
func (p *Plugin) begin(state fwk.CycleState, c *cycle) {
	state.Write(cycleKey, c)
	p.latest.Store(&latest{state, c})
}

// cycleOf returns nil for a pod that asks for no device.
func (p *Plugin) cycleOf(state fwk.CycleState) *cycle {
	if last := p.latest.Load(); last != nil && last.state == state {
		return last.cycle
	}
	data, err := state.Read(cycleKey)
	if err != nil {
		return nil
	}
	return data.(*cycle)
}
