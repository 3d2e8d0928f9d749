// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

var _ fwk.PreFilterExtensions = (*Plugin)(nil)

// PreFilterExtensions returns the plugin itself. It has nothing to add up: Filter computes from the
// NodeInfo that it is given, which preemption has changed already.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return p }

// AddPod ends the simulation of an eviction that has used up its budget. Upstream calls it before
// it looks whether a pod can stay, and RemovePod when it can't. The node is then no candidate: a
// pod whose search was not made must not be evicted for that. The pod is tried again, and what was
// found so far is known then.
func (p *Plugin) AddPod(_ context.Context, state fwk.CycleState, _ *v1.Pod, _ fwk.PodInfo, _ fwk.NodeInfo) *fwk.Status {
	if c := p.cycleOf(state); c != nil && c.simulation && c.budget.Refused() > 0 {
		return fwk.AsStatus(errIncomplete)
	}
	return nil
}

// RemovePod is AddPod.
func (p *Plugin) RemovePod(
	ctx context.Context, state fwk.CycleState, pod *v1.Pod, removed fwk.PodInfo, nodeInfo fwk.NodeInfo,
) *fwk.Status {
	return p.AddPod(ctx, state, pod, removed, nodeInfo)
}

var errIncomplete = errors.New("the search for devices takes too long to find out which pods would have to go " +
	"(--device-search-budget); it goes on when the pod is tried again")
