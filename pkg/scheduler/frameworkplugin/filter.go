// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/scheduler/pluginhost"
)

// Filter reports whether the node has the devices that the pod requests, given the pods that
// nodeInfo lists.
func (p *Plugin) Filter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodeInfo fwk.NodeInfo) *fwk.Status {
	c := p.cycleOf(state)
	if c == nil || !c.limited() && c.knownToFit(nodeInfo) {
		return nil
	}
	if c.skipped {
		return p.notSearched(pod)
	}
	found, err := p.verdict(ctx, c, pod, nodeInfo)
	switch {
	case err != nil:
		return p.rejected(err)
	case found.Fits:
		return p.withinLimits(ctx, c, pod, nodeInfo)
	case found.NotSearched:
		return p.notSearched(pod)
	case found.TimedOut:
		p.retries.add(pod)
	}
	code := fwk.Unschedulable
	if found.Unresolvable {
		code = fwk.UnschedulableAndUnresolvable
	}
	var status *fwk.Status
	switch {
	case found.Shortage != nil:
		status = c.reasons.status(code, found.Shortage)
	case found.TooLarge:
		status = fwk.NewStatus(code, fmt.Sprintf("cannot serve pod %s: %s", klog.KObj(pod), found.Reasons[0]))
	default:
		status = fwk.NewStatus(code, slices.Clone(found.Reasons)...)
	}
	if text := p.untolerated(ctx, c, pod, nodeInfo); text != "" {
		status.AppendReason(text)
	}
	if text := p.unhealthy(ctx, c, nodeInfo); text != "" {
		status.AppendReason(text)
	}
	if text := p.claimed(c, nodeInfo); text != "" {
		status.AppendReason(text)
	}
	if keys := c.request.Choice.Keys(); len(keys) > 0 {
		status.AppendReason("may have GPUs that the pod leaves out by its annotation " + strings.Join(keys, ", "))
	}
	if text := heldByLess(c.request, nodeInfo.Node()); text != "" {
		status.AppendReason(text)
	}
	return status
}

// withinLimits refuses a node on which the pod would hold more than the limits of its cycle.
func (p *Plugin) withinLimits(ctx context.Context, c *cycle, pod *v1.Pod, nodeInfo fwk.NodeInfo) *fwk.Status {
	if !c.limited() {
		return nil
	}
	node, err := p.nodes.State(ctx, nodeInfo, pod, false)
	if err != nil {
		return p.rejected(err)
	}
	allocated, err := p.schedulers.AllocateWithin(ctx, node, c.request, c.budget)
	switch {
	case errors.Is(err, allocation.ErrNotSearched):
		return p.notSearched(pod)
	case err != nil:
		return p.rejected(err)
	}
	return p.exceeded(c, nodeInfo.Node().Name, pod, allocated)
}

// verdict returns the verdict on the node, cached or computed. An error says that there is none.
func (p *Plugin) verdict(
	ctx context.Context, c *cycle, pod *v1.Pod, nodeInfo fwk.NodeInfo,
) (*allocation.Verdict, error) {
	known, unmodified := c.verdicts.Get(nodeInfo)
	if known != nil {
		return known, nil
	}
	// The snapshot stays as it is during a cycle, except that the preemption of a pod group changes
	// it.
	node, err := p.nodes.State(ctx, nodeInfo, pod, unmodified || !c.simulation && !inGroup(pod))
	if err != nil {
		return nil, err
	}
	found, err := p.schedulers.FitWithin(ctx, node, c.request, c.budget)
	if err != nil {
		return nil, err
	}
	if unmodified && !found.NotSearched {
		c.verdicts.Put(nodeInfo, node, &found)
	}
	return &found, nil
}

// unhealthy says which devices like those that the pod requests are unhealthy on a node that it
// does not fit; "" if none, and in a simulation, whose reasons are not read.
func (p *Plugin) unhealthy(ctx context.Context, c *cycle, nodeInfo fwk.NodeInfo) string {
	if c.simulation {
		return ""
	}
	return p.nodes.UnhealthyText(ctx, nodeInfo.Node(), c.request)
}

// claimed says which devices like those that the pod requests claims have on a node that it does
// not fit; "" if none, and in a simulation, whose reasons are not read.
func (p *Plugin) claimed(c *cycle, nodeInfo fwk.NodeInfo) string {
	if c.simulation {
		return ""
	}
	return p.nodes.ClaimedText(nodeInfo.Node(), c.request)
}

// notSearched returns the status of a node for which the cycle's budget has nothing left. Evicting
// pods there would be wrong: it may fit as it is. The pod is tried again.
func (p *Plugin) notSearched(pod *v1.Pod) *fwk.Status {
	p.retries.add(pod)
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable,
		"were not searched: the cycle's budget (--device-cycle-budget) is used up; they are next when the pod is "+
			"tried again")
}

// rejected returns the status of a node whose devices cannot be scheduled, which no eviction
// changes. Events group nodes by its text.
func (p *Plugin) rejected(err error) *fwk.Status {
	if errors.Is(err, pluginhost.ErrNoAnswer) {
		p.requeuer.activateAfter(pluginhost.RetryAfter(err))
	}
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, err.Error())
}
