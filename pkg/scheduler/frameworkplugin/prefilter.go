// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/request"
)

// fewNodesFraction defines what few nodes are: fewer than one in this many.
const fewNodesFraction = 10

// PreFilter is what every pod meets first, with devices or without, and only on the scheduler that
// leads. It reads the pod's request, begins a cycle of the verdict cache, and leaves only the nodes
// that may fit. A pod that requests no device is skipped. A pod whose annotation cannot be read, or
// has a misspelled key, is rejected until it changes, and one that passes by a quota until it or
// the quota changes. Other mistakes in annotations are events.
func (p *Plugin) PreFilter(
	ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo,
) (*fwk.PreFilterResult, *fwk.Status) {
	p.noteLeading()
	p.explainWait(pod)
	if !request.MayRequest(pod) {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	if !p.nodesSynced.HasSynced() {
		for _, node := range nodes {
			p.nodes.Observe(ctx, node.Node())
		}
	}
	p.reportMistakes(pod)
	p.nodes.Requests.Attempt(pod)
	request, err := p.nodes.Requests.Read(pod)
	if err != nil {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, err.Error())
	}
	if request == nil {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	p.syncClaims(ctx)
	p.reportUnknown(pod)
	if refused := p.checkLimits(pod, request); refused != nil {
		return nil, refused
	}
	if refused := p.checkParts(pod, request); refused != nil {
		return nil, refused
	}
	limit, refused := p.countLimit(pod, request)
	if refused != nil {
		return nil, refused
	}
	parts, refused := p.partLimit(pod, request, nodes)
	if refused != nil {
		return nil, refused
	}
	c := &cycle{
		request:  request,
		limit:    limit,
		parts:    parts,
		budget:   p.beginCycle(request),
		verdicts: p.verdicts.Begin(nodes, request, pod.Spec.Tolerations, !inGroup(pod)),
		reasons:  newReasonAggregator(p.schedulers.DisplayNames(), nil),
	}
	candidates := c.preFilter(pod, len(nodes))
	if candidates == nil && !inGroup(pod) {
		c.unverified = c.verdicts.Unverified(len(nodes) / fewNodesFraction)
	}
	p.begin(state, c)
	return candidates, nil
}

// preFilter returns the nodes that are not known to be infeasible, or nil for all nodes. A cluster
// of devices is mostly full, and nodes without a free device are known when a cycle begins: they
// need no Filter. PostFilter filters them when the pod fits nowhere else; then the event has their
// reasons, and preemption can consider them.
//
// A few infeasible nodes are not worth it: naming the nodes that remain costs more than filtering
// those. None is removed for the pods of a group, for which upstream runs no PostFilter.
func (c *cycle) preFilter(pod *v1.Pod, nodes int) *fwk.PreFilterResult {
	infeasible := c.verdicts.Infeasible()
	if infeasible*fewNodesFraction < nodes || infeasible == nodes || inGroup(pod) || othersMayPreFilter(pod) {
		return nil
	}
	c.preFiltered = true
	return &fwk.PreFilterResult{NodeNames: c.verdicts.Candidates()}
}

// othersMayPreFilter reports whether another plugin may remove nodes for this pod: if nothing
// remained after both, upstream would report no reason for each node.
func othersMayPreFilter(pod *v1.Pod) bool {
	affinity := pod.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil ||
		affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return false
	}
	for _, term := range affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		if len(term.MatchFields) > 0 { // which name nodes
			return true
		}
	}
	return false
}
