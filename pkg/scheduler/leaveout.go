// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// A cluster of devices is mostly full, and the nodes that have none left are known when a pod's cycle begins. PreFilter leaves
// them out, so that nobody looks at them. PostFilter asks them after all when the pod fits nowhere else: then the event says
// what they lack, and preemption may make room on them, just as if none had been left out.

// few says what few nodes are: fewer than one of so many. It pays to leave out nodes that are not few: to name a node that stays costs a
// fraction of what it costs to ask one that does not fit. Those that are few are told from all others, of which none has to be looked up.
const few = 10

// leaveOut returns the nodes of the snapshot without those that are known not to fit, or nil for all of them. None is left out for the
// pods of a group, for which upstream runs no PostFilter.
func (c *cycle) leaveOut(pod *v1.Pod, nodes []fwk.NodeInfo) *fwk.PreFilterResult {
	unfit := c.survey.countUnfit()
	if unfit*few < len(nodes) || unfit == len(nodes) || inGroup(pod) || othersMayLeaveOut(pod) {
		return nil
	}
	c.leftOut = true
	remaining := make(sets.Set[string], len(nodes)-unfit)
	for place, node := range nodes {
		if known := c.survey.verdict(place); known == nil || known.Fits {
			remaining.Insert(node.Node().Name)
		}
	}
	return &fwk.PreFilterResult{NodeNames: remaining}
}

// othersMayLeaveOut reports whether another plugin may leave out nodes for this pod: if none were left by both, upstream would not
// say what each node lacks.
func othersMayLeaveOut(pod *v1.Pod) bool {
	affinity := pod.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return false
	}
	for _, term := range affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		if len(term.MatchFields) > 0 { // which name nodes
			return true
		}
	}
	return false
}

// PostFilter asks the nodes that were left out, and adds what they say to what the others have said. It makes no room itself, and
// leaves the pod to the next plugin.
func (p *Plugin) PostFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, said fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	if c := p.cycleOf(state); c != nil && c.leftOut {
		if err := p.askLeftOut(ctx, state, pod, said.(*framework.NodeToStatus)); err != nil {
			return nil, fwk.AsStatus(err)
		}
	}
	return nil, fwk.NewStatus(fwk.Unschedulable)
}

func (p *Plugin) askLeftOut(ctx context.Context, state fwk.CycleState, pod *v1.Pod, said *framework.NodeToStatus) error {
	nodes, err := p.handle.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return err
	}
	asked := make(sets.Set[string], said.Len())
	said.ForEachExplicitNode(func(name string, _ *fwk.Status) { asked.Insert(name) })
	for _, node := range nodes {
		name := node.Node().Name
		if asked.Has(name) {
			continue
		}
		if status := p.handle.RunFilterPlugins(ctx, state, pod, node); !status.IsSuccess() {
			said.Set(name, status)
		}
	}
	return nil
}
