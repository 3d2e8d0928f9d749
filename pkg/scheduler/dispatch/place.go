// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
)

// rest is what is left to do when all plugins have been asked.
type rest struct {
	of *Request
	// unserved says what no plugin has taken up, or "".
	unserved string
	// translation is what the group scheduler is to place, or nil when it has nothing to do with the pod.
	translation *translation
}

// rest returns what is left of a request that plugins made this of. It is remembered: most nodes get the same.
func (s *Set) rest(request *Request, at *asked) (*rest, error) {
	if known := at.rest.Load(); known != nil && known.of == request {
		return known, nil
	}
	left := &rest{of: request, unserved: request.unserved(at.pod)}
	if left.unserved == "" && s.usesGroups(at.pod) {
		compiled, err := request.compile(at.pod)
		if err != nil {
			return nil, err
		}
		left.translation = &compiled
	}
	at.rest.Store(left)
	return left, nil
}

// placed is the group scheduler's answer.
type placed struct {
	*grouptree.Placement
	*translation
}

// place asks the group scheduler.
func (s *Set) place(ctx context.Context, node *Node, translated *translation) placed {
	placer := s.placers.Get().(*grouptree.Placer)
	defer s.placers.Put(placer)
	placement := s.memo.Place(placer, node.inventory.groups, node.used, translated.request)
	if placement.LimitHit {
		s.recorder.StepLimitHit()
		s.limits.log(ctx, node, placement)
	}
	return placed{placement, translated}
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
	case grouptree.Insufficient:
		return reason.Level == "" && !reason.Mask && reason.Needed > reason.Capacity
	default:
		return false
	}
}
