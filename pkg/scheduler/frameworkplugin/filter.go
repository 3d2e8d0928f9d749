// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/scheduler/dispatch"
)

// Filter reports whether the node has the devices that the pod asks for, given the pods that
// nodeInfo lists.
func (p *Plugin) Filter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodeInfo fwk.NodeInfo) *fwk.Status {
	c := p.cycleOf(state)
	if c == nil || c.knownToFit(nodeInfo) {
		return nil
	}
	found, err := p.fit(ctx, c, pod, nodeInfo)
	switch {
	case err != nil:
		return p.rejected(err)
	case found.Fits:
		return nil
	}
	code := fwk.Unschedulable
	if found.Never {
		code = fwk.UnschedulableAndUnresolvable
	}
	if found.Lack != nil {
		return c.reasons.status(code, found.Lack)
	}
	return fwk.NewStatus(code, found.Reasons...)
}

// fit returns the node's answer, which it finds in the survey or adds there. An error says that
// there is none.
func (p *Plugin) fit(ctx context.Context, c *cycle, pod *v1.Pod, nodeInfo fwk.NodeInfo) (*dispatch.Verdict, error) {
	return p.fitAt(ctx, c, pod, nodeInfo, c.survey.find(nodeInfo))
}

// fitAt is fit for a node whose place in the survey is known; it is negative for one that is not of
// the snapshot. The snapshot stays as it is during a cycle, but for the preemption of a pod group,
// which changes it and asks on for the group's pods.
func (p *Plugin) fitAt(ctx context.Context, c *cycle, pod *v1.Pod, nodeInfo fwk.NodeInfo, place int) (*dispatch.Verdict, error) {
	if inGroup(pod) {
		place = c.survey.unlessChanged(place)
	}
	if known := c.survey.verdict(place); known != nil {
		return known, nil
	}
	node, err := p.nodes.Of(ctx, nodeInfo, pod, place >= 0)
	if err != nil {
		return nil, err
	}
	verdict, err := p.schedulers.Fit(ctx, node, c.request)
	if err != nil {
		return nil, err
	}
	if place >= 0 {
		c.survey.note(place, node, &verdict)
	}
	return &verdict, nil
}

// rejected returns the status of a node whose devices cannot be scheduled, which no eviction
// changes. Events groups nodes by its text.
func (p *Plugin) rejected(err error) *fwk.Status {
	if errors.Is(err, dispatch.ErrNoAnswer) {
		p.requeuer.after(dispatch.RetryAfter(err))
	}
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, err.Error())
}
