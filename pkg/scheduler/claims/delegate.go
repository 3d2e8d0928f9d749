// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/scheduler/ledger"
)

// What does not choose devices is upstream's.

// PreEnqueue implements fwk.PreEnqueuePlugin.
func (p *Plugin) PreEnqueue(ctx context.Context, pod *v1.Pod) *fwk.Status {
	return p.upstream.PreEnqueue(ctx, pod)
}

// EventsToRegister implements fwk.EnqueueExtensions. Preemption frees devices when the victim's
// claim is deallocated, which is one of these events. Those are not upstream's by which a device is
// KubeDevice's no longer.
func (p *Plugin) EventsToRegister(ctx context.Context) ([]fwk.ClusterEventWithHint, error) {
	all, err := p.upstream.EventsToRegister(ctx)
	return append(all, ledger.EventsForClaims()...), err
}

// SignPod implements fwk.SignPlugin.
func (p *Plugin) SignPod(ctx context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	return p.upstream.SignPod(ctx, pod)
}

// PodGroupPostFilter implements fwk.PodGroupPostFilterPlugin. The pods of groups are left to
// upstream as a whole.
func (p *Plugin) PodGroupPostFilter(
	ctx context.Context, state fwk.PodGroupCycleState, group fwk.PodGroupInfo, schedule fwk.PodGroupSchedulingFunc,
) (*fwk.PodGroupPostFilterResult, *fwk.Status) {
	return p.upstream.PodGroupPostFilter(ctx, state, group, schedule)
}

// PreBindPreFlight implements fwk.PreBindPlugin.
func (p *Plugin) PreBindPreFlight(
	ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string,
) (*fwk.PreBindPreFlightResult, *fwk.Status) {
	return p.upstream.PreBindPreFlight(ctx, state, pod, nodeName)
}
