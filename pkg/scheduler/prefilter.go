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

// PreFilter reads the pod's request, and begins the survey of the nodes. A pod that asks for no device is skipped. One whose annotation cannot be read is
// rejected until the pod changes.
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
	p.begin(state, &cycle{request, p.surveyor.begin(nodes, request), newTally(p.schedulers.Words(), nil)})
	return nil, nil
}

// PreFilterExtensions returns nil: Filter computes from the NodeInfo that it is given, which preemption has changed
// already.
func (*Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return nil }
