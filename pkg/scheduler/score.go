// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"math"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// PreScore skips scoring for a pod that asks for no device.
func (p *Plugin) PreScore(_ context.Context, state fwk.CycleState, _ *v1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	if p.cycleOf(state) == nil {
		return fwk.NewStatus(fwk.Skip)
	}
	return nil
}

// Score returns the score that Filter found for the node, from fwk.MinScore to fwk.MaxScore.
func (p *Plugin) Score(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodeInfo fwk.NodeInfo) (int64, *fwk.Status) {
	c := p.cycleOf(state)
	if c == nil {
		return 0, nil
	}
	found, err := p.fit(ctx, c, pod, nodeInfo)
	if err != nil {
		return 0, p.rejected(err)
	}
	return int64(math.Round(found.Score * float64(fwk.MaxScore))), nil
}

// ScoreExtensions returns nil: the scores are on the framework's scale already.
func (*Plugin) ScoreExtensions() fwk.ScoreExtensions { return nil }
