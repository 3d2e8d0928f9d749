// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/scheduler/nodestate"
	"github.com/kubedevice/kubedevice/pkg/scheduler/verdict"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// WhatIf is the plugin for questions about what would be. It answers as the plugin of the profile
// does, for a state that it is given, and changes nothing that a scheduling cycle sees: it keeps no
// verdict, wakes no pod, writes no event, and is not charged to the budget that all cycles share:
// each node is searched within its own. One goroutine at a time may use it.
type WhatIf struct{ *Plugin }

// idle is a runner that runs nothing.
type idle struct{}

// Run implements runner.
func (idle) Run(func(context.Context)) {}

// complete is synced with a state that has all nodes.
type complete struct{}

// HasSynced implements synced.
func (complete) HasSynced() bool { return true }

// WhatIf returns the plugin for questions in the profile that has this handle, which must not be
// one that schedules pods.
func (s *Shared) WhatIf(handle fwk.Handle) *WhatIf {
	mine := &Shared{
		whatIf:      true,
		schedulers:  s.schedulers,
		nodes:       s.nodes, // until Answer
		clock:       s.clock,
		requeuer:    &requeuer{runner: idle{}, clock: s.clock},
		verdicts:    verdict.PassThrough(),
		quotas:      s.quotas,
		quotaMode:   s.quotaMode,
		seals:       s.seals,
		nodeLister:  s.nodeLister,
		nodesSynced: complete{},
	}
	mine.retries = &retries{runner: idle{}, clock: s.clock}
	mine.background.init(context.Background())
	return &WhatIf{New(handle, mine)}
}

// Answer makes the next questions be about this state.
func (w *WhatIf) Answer(nodes *nodestate.Copy) {
	w.nodes = nodes.Cache
	w.retries.forget()
	w.latest.Store(nil)
}

// Choose chooses devices for a pod that fits a node, as Reserve does, and reserves them in the
// state that the questions are about. It returns nil where nothing that the pod requests is a
// device.
func (w *WhatIf) Choose(
	ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodeInfo fwk.NodeInfo,
) (*sdk.PodInfo, error) {
	c := w.cycleOf(state)
	if c == nil {
		return nil, nil
	}
	chosen, _, err := w.allocate(ctx, c, pod, nodeInfo)
	if err != nil || chosen.annotation == "" {
		return nil, err
	}
	w.nodes.Reserve(nodeInfo.Node().Name, pod, chosen.holder, chosen.annotation)
	return chosen.holder.Pod, nil
}

// beginCycle returns the budget of a cycle, nil for each node's own.
func (s *Shared) beginCycle(request *request.Request) *allocation.Budget {
	if s.whatIf {
		return nil
	}
	return s.schedulers.BeginCycle(request)
}

// forget drops all pods that wait for another try.
func (r *retries) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.order, r.pods = nil, nil
}
