// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/scheduler/dispatch"
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
		return 0, p.rejected(err)
	}
	verdict, err := p.schedulers.Fit(ctx, node, c.request)
	switch {
	case err != nil:
		return 0, p.rejected(err)
	case verdict.Fits:
		return verdict.Score, nil
	}
	code := fwk.Unschedulable
	if verdict.Never {
		code = fwk.UnschedulableAndUnresolvable
	}
	if verdict.Lack != nil {
		return 0, c.tally.status(code, verdict.Lack)
	}
	return 0, fwk.NewStatus(code, verdict.Reasons...)
}

// rejected returns the status of a node whose devices cannot be scheduled, which no eviction changes. Events groups nodes
// by its text.
func (p *Plugin) rejected(err error) *fwk.Status {
	if errors.Is(err, dispatch.ErrNoAnswer) {
		p.waker.in(p.schedulers.Pause())
	}
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, err.Error())
}

// inSnapshot reports whether nodeInfo is the cycle's own, and not a copy that a simulation has changed.
func (p *Plugin) inSnapshot(nodeInfo fwk.NodeInfo) bool {
	original, err := p.handle.SnapshotSharedLister().NodeInfos().Get(nodeInfo.Node().Name)
	return err == nil && original == nodeInfo
}
