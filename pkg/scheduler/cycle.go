// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"sync"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/scheduler/dispatch"
)

// cycle is what the plugin keeps of one pod's scheduling cycle: the request, read once, and what Filter found.
type cycle struct {
	request *dispatch.Request
	tally   *tally

	mu     sync.Mutex
	scores map[string]float64 // by node name
}

const cycleKey fwk.StateKey = Name

func newCycle(request *dispatch.Request, tally *tally) *cycle {
	return &cycle{request: request, tally: tally, scores: map[string]float64{}}
}

// Clone returns a cycle for a simulation, whose answers do not count.
func (c *cycle) Clone() fwk.StateData { return newCycle(c.request, c.tally.simulation()) }

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
