// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/cache"
	"github.com/kubedevice/kubedevice/pkg/grouptree"
)

// groupScheduler places what plugins translated. It is safe for concurrent use.
type groupScheduler struct {
	placers    sync.Pool // of *grouptree.Placer
	placements *cache.Cache[placementKey, *grouptree.Placement]
	reasons    *cache.Cache[reasonKey, *grouptree.Reason]
	recorder   Recorder
	limits     limitLog
}

// placementKey is all that a placement depends on.
type placementKey struct {
	request grouptree.Digest
	node    nodeKey
}

// reasonKey is all that a reason depends on. It names containers and requests, which placements do
// not.
type reasonKey struct {
	request   *grouptree.Request
	placement *grouptree.Placement
}

func newGroupScheduler(clk clock.PassiveClock, recorder Recorder, sizes sizes) groupScheduler {
	return groupScheduler{
		placers:    sync.Pool{New: func() any { return grouptree.NewPlacer(0) }},
		placements: cache.New[placementKey, *grouptree.Placement](sizes.placements),
		reasons:    cache.New[reasonKey, *grouptree.Reason](sizes.reasons),
		recorder:   recorder,
		limits:     limitLog{clock: clk},
	}
}

// place places a request on a node.
func (g *groupScheduler) place(ctx context.Context, node *Node, request *grouptree.Request) *grouptree.Placement {
	placement := g.cachedPlacement(node, request)
	if placement.LimitHit {
		g.recorder.StepLimitHit()
		g.limits.log(ctx, node, placement)
	}
	return placement
}

func (g *groupScheduler) cachedPlacement(node *Node, request *grouptree.Request) *grouptree.Placement {
	// What a pinned device is depends on the names of this node's devices.
	key, caches := placementKey{request: request.Digest()}, !request.Pinned()
	if caches {
		key.node = node.state()
		if known, ok := g.placements.Get(key); ok {
			return known
		}
	}
	placer := g.placers.Get().(*grouptree.Placer)
	defer g.placers.Put(placer)
	placement := placer.Place(node.inventory.tree, node.used, request)
	if caches {
		g.placements.Add(key, placement)
	}
	return placement
}

// explain says why a request does not fit the node, as the placement shows. Nodes that look the
// same share a placement, and so the reason: finding it costs more than a look-up.
func (g *groupScheduler) explain(
	node *Node, request *grouptree.Request, placement *grouptree.Placement,
) *grouptree.Reason {
	key := reasonKey{request, placement}
	if known, ok := g.reasons.Get(key); ok {
		return known
	}
	reason := grouptree.Explain(node.inventory.tree, node.used, request, placement)
	if !request.Pinned() { // else the next placement is another one
		g.reasons.Add(key, reason)
	}
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

// limitLogPeriod is how often an answer that the step limit cut short is logged. A pod may get one
// from every node; the recorder gets them all.
const limitLogPeriod = time.Minute

// limitLog logs answers that the step limit cut short. It is safe for concurrent use.
type limitLog struct {
	clock clock.PassiveClock
	next  atomic.Int64 // when to log again, in nanoseconds since 1970
}

// log logs the answer, unless one was logged less than a period ago. The logger of ctx has the pod.
func (l *limitLog) log(ctx context.Context, node *Node, placement *grouptree.Placement) {
	now, next := l.clock.Now(), l.next.Load()
	if now.UnixNano() < next || !l.next.CompareAndSwap(next, now.Add(limitLogPeriod).UnixNano()) {
		return
	}
	klog.FromContext(ctx).
		Info("The search for devices stopped at its step limit: a placement that it found may not be "+
			"the best, and one that it did not find may exist", "node", klog.KRef("", node.info.Name),
			"steps", placement.Steps, "found", placement.Fits, "silentFor", limitLogPeriod)
}
