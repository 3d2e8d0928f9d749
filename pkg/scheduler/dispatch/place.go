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
	request *grouptree.Request
}

// place asks the group scheduler. pod is the request as the plugins translated it for the node.
func (s *Set) place(ctx context.Context, node *Node, request *Request, pod *types.PodInfo) (placed, error) {
	compiled, err := request.compile(pod)
	if err != nil {
		return placed{}, err
	}
	placer := s.placers.Get().(*grouptree.Placer)
	defer s.placers.Put(placer)
	placement := s.memo.Place(placer, node.inventory.groups, node.used, compiled)
	if placement.LimitHit {
		s.recorder.StepLimitHit()
		s.limits.tell(ctx, node, placement)
	}
	return placed{placement, compiled}, nil
}

// explain says why the pod does not fit the node.
func (p placed) explain(node *Node) *grouptree.Reason {
	return grouptree.Explain(node.inventory.groups, node.used, p.request, p.Placement)
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
