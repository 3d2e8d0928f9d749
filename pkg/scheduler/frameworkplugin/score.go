// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"context"
	"fmt"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
)

// PreScore takes the scores of all nodes from their verdicts. A pod that requests no device is
// skipped.
//
// Nodes are in classes by the quality of the devices that the pod would get. A class has its part
// of the range of scores, the better class the higher one: within it the score decides.
//
// A node whose kubelet counts all that the pod requests has no score of its own. It gets the mean
// of those that have one: then other plugins choose between the two kinds of nodes, and none of
// them is filled first.
//
// Nodes are scored here and not in Score, which is called for one node at a time: in between, the
// scoring of other plugins evicts the next verdict from the CPU's cache.
func (p *Plugin) PreScore(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) *fwk.Status {
	c := p.cycleOf(state)
	if c == nil {
		return fwk.NewStatus(fwk.Skip)
	}
	c.scores = make([]int64, len(nodes))
	qualities, err := p.scoreNodes(ctx, c, pod, nodes, nil)
	if err == nil && len(qualities) > 1 {
		_, err = p.scoreNodes(ctx, c, pod, nodes, qualities)
	}
	if err != nil {
		return p.rejected(err)
	}
	return nil
}

// scoreNodes sets the scores of the nodes, which have these qualities, in order; nil stands for a
// single one. It returns the qualities that they have.
func (p *Plugin) scoreNodes(
	ctx context.Context, c *cycle, pod *v1.Pod, nodes []fwk.NodeInfo, qualities []float64,
) (found []float64, err error) {
	var last *allocation.Verdict // which most nodes share
	var score, total, scored int64
	for i, nodeInfo := range nodes {
		verdict, err := p.verdict(ctx, c, pod, nodeInfo)
		if err != nil {
			return nil, err
		}
		if verdict != last {
			last = verdict
			class, _ := slices.BinarySearch(qualities, verdict.Quality)
			share := (float64(class) + verdict.Score) / float64(max(1, len(qualities)))
			score = int64(math.Round(share * float64(fwk.MaxScore)))
			if verdict.NoDevices {
				score = unscored
			} else if at, known := slices.BinarySearch(found, verdict.Quality); !known {
				found = slices.Insert(found, at, verdict.Quality)
			}
		}
		if c.scores[i] = score; score != unscored {
			total += score
			scored++
		}
	}
	for i := range c.scores {
		if c.scores[i] == unscored {
			c.scores[i] = total / max(1, scored)
		}
	}
	return found, nil
}

// unscored stands for the score of a node that has none.
const unscored = -1

// Score returns 0: NormalizeScore sets the scores of all nodes at once.
func (*Plugin) Score(context.Context, fwk.CycleState, *v1.Pod, fwk.NodeInfo) (int64, *fwk.Status) {
	return 0, nil
}

// ScoreExtensions returns the plugin itself.
func (p *Plugin) ScoreExtensions() fwk.ScoreExtensions { return p }

// NormalizeScore sets the scores that PreScore took, from fwk.MinScore to fwk.MaxScore. The
// framework lists the nodes in the order of PreScore.
func (p *Plugin) NormalizeScore(
	_ context.Context, state fwk.CycleState, pod *v1.Pod, scores fwk.NodeScoreList,
) *fwk.Status {
	c := p.cycleOf(state)
	if c == nil {
		return nil
	}
	if len(c.scores) != len(scores) {
		return fwk.AsStatus(fmt.Errorf("score nodes for pod %q: PreScore had %d nodes, and %d are scored; "+
			"a profile that enables %s for score must enable it for preScore too",
			klog.KObj(pod), len(c.scores), len(scores), Name))
	}
	for i := range scores {
		scores[i].Score = c.scores[i]
	}
	return nil
}
