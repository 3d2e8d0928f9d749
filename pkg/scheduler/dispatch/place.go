// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// placed is the group scheduler's answer.
type placed struct {
	*grouptree.Placement
	translation
}

// place asks the group scheduler. pod is the request as the plugins translated it for the node.
func (s *Set) place(ctx context.Context, node *Node, request *Request, pod *types.PodInfo) (placed, error) {
	compiled, err := request.compile(pod)
	if err != nil {
		return placed{}, err
	}
	placer := s.placers.Get().(*grouptree.Placer)
	defer s.placers.Put(placer)
	placement := s.memo.Place(placer, node.inventory.groups, node.used, compiled.request)
	if placement.LimitHit {
		s.recorder.StepLimitHit()
		s.limits.tell(ctx, node, placement)
	}
	return placed{placement, compiled}, nil
}

// explain says why the pod does not fit the node. Nodes that look the same share a placement, and so the reason: finding
// it costs more than a look-up of the placement.
func (p placed) explain(node *Node) *grouptree.Reason {
	if known, ok := p.reasons.Load(p.Placement); ok {
		return known.(*grouptree.Reason)
	}
	reason := grouptree.Explain(node.inventory.groups, node.used, p.request, p.Placement)
	p.reasons.Store(p.Placement, reason)
	return reason
}

// never reports whether a reason would stand on an empty node too.
func never(reason *grouptree.Reason) bool {
	switch reason.Cause {
	case grouptree.Missing, grouptree.Gone, grouptree.Small:
		return true
	case grouptree.Short:
		return reason.Level == "" && !reason.Mask && reason.Needed > reason.Capacity
	default:
		return false
	}
}
