// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// Filter reports whether the node has the devices that the pod asks for, given the pods that nodeInfo lists.
func (p *Plugin) Filter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodeInfo fwk.NodeInfo) *fwk.Status {
	c := cycleOf(state)
	if c == nil {
		return nil
	}
	score, status := p.fit(ctx, c, pod, nodeInfo)
	if status.IsSuccess() {
		c.setScore(nodeInfo.Node().Name, score)
	}
	return status
}

func (p *Plugin) fit(ctx context.Context, c *cycle, pod *v1.Pod, nodeInfo fwk.NodeInfo) (float64, *fwk.Status) {
	node, err := p.nodes.Of(ctx, nodeInfo, pod, p.inSnapshot(nodeInfo))
	if err != nil {
		return 0, fwk.NewStatus(fwk.Unschedulable, err.Error())
	}
	verdict, err := p.schedulers.Fit(ctx, node, c.request)
	if err != nil {
		return 0, fwk.NewStatus(fwk.Unschedulable, err.Error())
	}
	if !verdict.Fits {
		return 0, fwk.NewStatus(fwk.Unschedulable, verdict.Reasons...)
	}
	return verdict.Score, nil
}

// inSnapshot reports whether nodeInfo is the cycle's own, and not a copy that a simulation has changed.
func (p *Plugin) inSnapshot(nodeInfo fwk.NodeInfo) bool {
	original, err := p.handle.SnapshotSharedLister().NodeInfos().Get(nodeInfo.Node().Name)
	return err == nil && original == nodeInfo
}
