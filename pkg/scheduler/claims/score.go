// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// Score scores a node by the alternatives that the pod's claims get there, as upstream's plugin
// does.
func (p *Plugin) Score(
	ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodeInfo fwk.NodeInfo,
) (int64, *fwk.Status) {
	c := cycleOf(state)
	switch {
	case c == nil:
		return p.upstream.Score(ctx, state, pod, nodeInfo)
	case c.isLeft(nodeInfo.Node().Name):
		whole, _ := c.whole(ctx, pod)
		return p.upstream.Score(ctx, whole, pod, nodeInfo)
	}
	c.found.mu.Lock()
	defer c.found.mu.Unlock()
	return c.found.scores[nodeInfo.Node().Name], nil
}

// ScoreExtensions returns the plugin itself.
func (p *Plugin) ScoreExtensions() fwk.ScoreExtensions { return p }

// NormalizeScore implements fwk.ScoreExtensions.
func (p *Plugin) NormalizeScore(
	ctx context.Context, state fwk.CycleState, pod *v1.Pod, scores fwk.NodeScoreList,
) *fwk.Status {
	return p.upstream.NormalizeScore(ctx, state, pod, scores)
}
