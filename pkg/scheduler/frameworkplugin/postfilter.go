// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// PostFilter filters the nodes that PreFilter has removed, and adds their statuses to those of the
// others. It evicts nothing itself, and leaves the pod to the next plugin; unless there are nodes
// that were not searched: no pod is evicted while the pod may fit elsewhere.
func (p *Plugin) PostFilter(
	ctx context.Context, state fwk.CycleState, pod *v1.Pod, statuses fwk.NodeToStatusReader,
) (*fwk.PostFilterResult, *fwk.Status) {
	c := p.cycleOf(state)
	if c == nil {
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	if c.preFiltered {
		if err := p.filterRemoved(ctx, state, pod, statuses.(*framework.NodeToStatus)); err != nil {
			return nil, fwk.AsStatus(err)
		}
	}
	if c.budget.Refused() > 0 {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "no pod is evicted before all nodes are searched")
	}
	c.evicting = true
	return nil, fwk.NewStatus(fwk.Unschedulable)
}

func (p *Plugin) filterRemoved(
	ctx context.Context, state fwk.CycleState, pod *v1.Pod, statuses *framework.NodeToStatus,
) error {
	nodes, err := p.handle.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return err
	}
	filtered := make(sets.Set[string], statuses.Len())
	statuses.ForEachExplicitNode(func(name string, _ *fwk.Status) { filtered.Insert(name) })
	for _, node := range nodes {
		name := node.Node().Name
		if filtered.Has(name) {
			continue
		}
		if status := p.handle.RunFilterPlugins(ctx, state, pod, node); !status.IsSuccess() {
			statuses.Set(name, status)
		}
	}
	return nil
}
