// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/scheduler/verdict"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// cycle is what the plugin keeps of one pod's scheduling cycle.
type cycle struct {
	request  *request.Request
	limit    *countLimit        // nil for none
	parts    *partLimit         // nil for none
	budget   *allocation.Budget // of the searches
	verdicts verdict.Cycle
	reasons  *reasonAggregator
	// unverified are the nodes that are not known to fit, when they are few; nil when they are not,
	// and in a simulation. The framework simulates with a clone of the state alone: with the state
	// itself, it filters nodes as they are in the snapshot.
	unverified  map[*framework.NodeInfo]struct{}
	simulation  bool
	preFiltered bool    // nodes were removed, see preFilter
	evicting    bool    // simulations from now on are those of evictions
	skipped     bool    // this simulation is not made: the budget is used up
	scores      []int64 // of PreScore's nodes, in their order
	// noDevices says that Reserve chose no device and has nothing to write: the node's kubelet
	// counts what the pod requests.
	noDevices bool
}

const cycleKey fwk.StateKey = Name

// Clone returns a cycle for a simulation, whose reasons do not count.
//
// The simulation of an eviction is made as a whole or not at all, see AddPod: upstream first takes
// all victims from the node, and evicts each for which Filter then fails, for any reason.
func (c *cycle) Clone() fwk.StateData {
	clone := &cycle{
		request: c.request, limit: c.limit, parts: c.parts, budget: c.budget, verdicts: c.verdicts,
		reasons: c.reasons.simulation(), simulation: true,
	}
	if c.evicting {
		clone.skipped, clone.budget = c.budget.UsedUp(), c.budget.Simulation()
	}
	return clone
}

// limited reports whether a node on which the pod fits may give it more than a limit allows.
func (c *cycle) limited() bool { return c.limit != nil || c.parts != nil && !c.parts.exact }

// exceeded says which limit an allocation on a node exceeds, and its status; nil for none.
func (p *Plugin) exceeded(c *cycle, nodeName string, pod *v1.Pod, allocated *sdk.PodInfo) *fwk.Status {
	if c.limit != nil {
		if text := c.limit.exceeded(p.schedulers.Counted(allocated, c.request.Containers)); text != "" {
			return fwk.NewStatus(fwk.Unschedulable, text) // other devices may be free after an eviction
		}
	}
	if c.parts != nil {
		if text := c.parts.exceeded(p.heldOn(nodeName, pod, allocated, c.request)); text != "" {
			return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, text)
		}
	}
	return nil
}

// inGroup reports whether the pod is one of a pod group, which are scheduled together.
func inGroup(pod *v1.Pod) bool { return pod.Spec.SchedulingGroup != nil }

// knownToFit reports whether a node is known to fit, as most are in most clusters, without looking
// up its verdict.
func (c *cycle) knownToFit(nodeInfo fwk.NodeInfo) bool {
	if c.unverified == nil {
		return false
	}
	known, _ := nodeInfo.(*framework.NodeInfo)
	_, unverified := c.unverified[known]
	return !unverified
}

// latest is the cycle that was begun last, and the state that has it. Filter is called for one node
// after the other in the same cycle; reading it from the state each time would be most of what it
// does.
type latest struct {
	state *framework.CycleState
	cycle *cycle
}

// begin makes c the cycle of this state.
func (p *Plugin) begin(state fwk.CycleState, c *cycle) {
	state.Write(cycleKey, c)
	if known, ok := state.(*framework.CycleState); ok {
		p.latest.Store(&latest{known, c})
	}
}

// cycleOf returns nil for a pod that requests no device.
func (p *Plugin) cycleOf(state fwk.CycleState) *cycle {
	if known, ok := state.(*framework.CycleState); ok {
		if last := p.latest.Load(); last != nil && last.state == known {
			return last.cycle
		}
	}
	data, err := state.Read(cycleKey)
	if err != nil {
		return nil
	}
	return data.(*cycle)
}
