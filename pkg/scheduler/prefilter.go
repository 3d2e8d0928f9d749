// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"sync"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/scheduler/dispatch"
)

// cycle is what the plugin keeps of one pod's scheduling cycle: the request, read once, and the scores found by Filter.
type cycle struct {
	request *dispatch.Request

	mu     sync.Mutex
	scores map[string]float64 // by node name
}

const cycleKey fwk.StateKey = Name

// Clone returns a cycle for a simulation, whose answers do not count.
func (c *cycle) Clone() fwk.StateData {
	return &cycle{request: c.request, scores: map[string]float64{}}
}

func (c *cycle) setScore(node string, score float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.scores[node] = score
}

func (c *cycle) score(node string) (float64, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	score, ok := c.scores[node]
	return score, ok
}

// cycleOf returns nil for a pod that asks for no device.
func cycleOf(state fwk.CycleState) *cycle {
	data, err := state.Read(cycleKey)
	if err != nil {
		return nil
	}
	return data.(*cycle)
}

// PreFilter reads the pod's request. A pod that asks for no device is skipped. One whose annotation cannot be read is
// rejected until the pod changes.
func (p *Plugin) PreFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	request, err := p.request(ctx, pod, nodes)
	if err != nil {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, err.Error())
	}
	if request == nil {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	state.Write(cycleKey, &cycle{request: request, scores: make(map[string]float64, len(nodes))})
	return nil, nil
}

// PreFilterExtensions returns nil: Filter computes from the NodeInfo that it is given, which preemption has changed
// already.
func (*Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return nil }
