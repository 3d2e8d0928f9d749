// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"fmt"
	"math"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Verdict is the answer of all device schedulers for one pod on one node.
type Verdict struct {
	// Fits says that all of them can serve the pod.
	Fits bool
	// Reasons say, for a pod that does not fit, what is missing, without the node's name.
	Reasons []string
	// Score says how well the pod fits, from 0 to 1: the mean over the schedulers that gave one.
	Score float64
}

// Fit asks every device scheduler whether the pod fits the node. An error means that one of them gave no answer.
func (s *Set) Fit(ctx context.Context, node *Node, request *Request) (Verdict, error) {
	pod := request.Pod
	var total float64
	var voters int
	for _, plugin := range s.plugins {
		given, nodeInfo := pod.Clone(), node.info.Clone()
		answer, err := call(ctx, plugin, "PodFitsDevice", func() (fitAnswer, error) {
			fits, reasons, score := plugin.PodFitsDevice(nodeInfo, given, false)
			a := fitAnswer{fits: fits, score: score}
			for _, reason := range reasons {
				a.reasons = append(a.reasons, reason.GetReason())
			}
			return a, nil
		})
		if err != nil {
			return Verdict{}, err
		}
		if !answer.fits {
			if len(answer.reasons) == 0 {
				answer.reasons = []string{fmt.Sprintf("device scheduler %q gives no reason", plugin.name)}
			}
			return Verdict{Reasons: answer.reasons}, nil
		}
		pod = given
		if !plugin.groups {
			total += unit(answer.score)
			voters++
		}
	}
	if missing := request.unserved(pod); missing != "" {
		return Verdict{Reasons: []string{missing}}, nil
	}
	if s.groups {
		groupRequest, placement, err := s.place(node, pod, request.Containers)
		if err != nil {
			return Verdict{}, err
		}
		if !placement.Fits {
			return Verdict{Reasons: []string{grouptree.Explain(node.inventory.groups, node.used, groupRequest, placement).String()}}, nil
		}
		total += unit(placement.Score)
		voters++
	}
	return Verdict{Fits: true, Score: total / float64(max(1, voters))}, nil
}

type fitAnswer struct {
	fits    bool
	reasons []string
	score   float64
}

// unit brings a plugin's score into the range from 0 to 1. What is no number counts as 0.
func unit(score float64) float64 {
	if math.IsNaN(score) {
		return 0
	}
	return min(max(score, 0), 1)
}
