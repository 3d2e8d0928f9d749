// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/scheduler/nodestate"
)

// untolerated says which devices of a node the pod does not get because of their taints, if it fits
// with them; "" if none, and in a simulation, whose reasons are not read.
func (p *Plugin) untolerated(ctx context.Context, c *cycle, pod *v1.Pod, nodeInfo fwk.NodeInfo) string {
	if c.simulation {
		return ""
	}
	tainted := p.nodes.Untolerated(nodeInfo.Node(), pod)
	if len(tainted) == 0 {
		return ""
	}
	tolerant, err := p.nodes.TolerantState(ctx, nodeInfo, pod, !inGroup(pod))
	if err != nil || !p.schedulers.MayFit(tolerant, c.request) {
		return ""
	}
	if found, err := p.schedulers.FitWithin(ctx, tolerant, c.request, c.budget); err != nil || !found.Fits {
		return ""
	}
	return nodestate.TaintsText(tainted, p.schedulers.DisplayNames())
}
