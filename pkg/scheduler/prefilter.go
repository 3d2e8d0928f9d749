// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/scheduler/nodestate"
)

// PreFilter reads the pod's request, begins the survey of the nodes, and leaves out some. A pod that asks for no device is
// skipped. One whose annotation cannot be read is rejected until the pod changes.
func (p *Plugin) PreFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if pod.Annotations[deviceinfo.Annotation] == "" && !nodestate.RequestsExtended(pod) {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	if !p.synced() {
		for _, node := range nodes {
			p.nodes.Observe(ctx, node.Node())
		}
	}
	request, err := p.nodes.Request(pod)
	if err != nil {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, err.Error())
	}
	if request == nil {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	c := &cycle{request: request, survey: p.surveyor.begin(nodes, request), tally: newTally(p.schedulers.Words(), nil)}
	remaining := c.leaveOut(pod, nodes)
	if !c.leftOut && !inGroup(pod) {
		c.doubtful = c.survey.doubtful(len(nodes) / few)
	}
	p.begin(state, c)
	return remaining, nil
}

// PreFilterExtensions returns nil: Filter computes from the NodeInfo that it is given, which preemption has changed
// already.
func (*Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return nil }
