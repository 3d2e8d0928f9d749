// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/cache"
	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/logkey"
)

// groupScheduler places what plugins translated. It is safe for concurrent use.
type groupScheduler struct {
	clock      clock.PassiveClock
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
		clock:      clk,
		placers:    sync.Pool{New: func() any { return grouptree.NewPlacer(0) }},
		placements: cache.New[placementKey, *grouptree.Placement](sizes.placements),
		reasons:    cache.New[reasonKey, *grouptree.Reason](sizes.reasons),
		recorder:   recorder,
		limits:     limitLog{clock: clk},
	}
}

// place places a request on a node. It returns nil when the budget has nothing left for a search.
func (g *groupScheduler) place(
	ctx context.Context, node *Node, request *grouptree.Request, within rationed,
) *grouptree.Placement {
	placement := g.cachedPlacement(node, request, within)
	if placement != nil && placement.LimitHit {
		g.recorder.StepLimitHit()
		g.limits.log(ctx, node, placement)
	}
	return placement
}

// known returns the placement of a request on nodes in this state, if it is cached.
func (g *groupScheduler) known(node *Node, request *grouptree.Request) (*grouptree.Placement, bool) {
	if request.Pinned() { // what a pinned device is depends on the names of this node's devices
		return nil, false
	}
	return g.placements.Get(placementKey{request.Digest(), node.state()})
}

func (g *groupScheduler) cachedPlacement(node *Node, request *grouptree.Request, within rationed) *grouptree.Placement {
	if known, ok := g.known(node, request); ok {
		return known
	}
	if !node.inventory.tree.Knows(request) {
		return g.unknown(node, request)
	}
	placement := &grouptree.Placement{}
	if node.summary().MayFit(request) {
		limits, admitted := within.admit(node)
		if limits.Steps == 0 {
			return nil
		}
		placement = g.search(node, request, limits, within, admitted)
		if placement.LimitHit && !admitted {
			return nil
		}
	}
	if !request.Pinned() && !placement.TimedOut {
		g.placements.Add(placementKey{request.Digest(), node.state()}, placement)
	}
	return placement
}

// unknown returns the placement of a request on nodes that lack a kind of device. It is the same
// one for all nodes of a shape, so that its reason is found once for all of them, and not for each
// state that a node is in.
func (g *groupScheduler) unknown(node *Node, request *grouptree.Request) *grouptree.Placement {
	key := placementKey{request.Digest(), nodeKey(node.inventory.tree.Shape())}
	placement, ok := g.placements.Get(key)
	if !ok {
		placement = &grouptree.Placement{}
		g.placements.Add(key, placement)
	}
	return placement
}

// search looks for a placement on a node that may have one.
func (g *groupScheduler) search(
	node *Node, request *grouptree.Request, limits grouptree.Limits, within rationed, admitted bool,
) *grouptree.Placement {
	placer := g.placers.Get().(*grouptree.Placer)
	defer g.placers.Put(placer)
	began := g.clock.Now()
	placement := placer.PlaceWithin(node.inventory.tree, node.used, request, limits)
	within.charge(placement.Steps, g.clock.Since(began), admitted)
	return placement
}

// explain says why a request does not fit the node, as the placement shows. Nodes that look the
// same share a placement, and so the reason: finding it costs more than a look-up.
// It may cost what the search has left of the limit for the node.
func (g *groupScheduler) explain(
	node *Node, request *grouptree.Request, placement *grouptree.Placement, within rationed,
) *grouptree.Reason {
	key := reasonKey{request, placement}
	if known, ok := g.reasons.Get(key); ok {
		return known
	}
	limits, admitted := within.admit(node)
	limit, began := limits.Steps, g.clock.Now()
	if admitted {
		limit = max(freeSteps, limit-placement.Steps)
	}
	reason, steps := grouptree.ExplainWithin(node.inventory.tree, node.used, request, placement, limit)
	within.charge(steps, g.clock.Since(began), admitted)
	// Of a pinned request, the next placement is another one.
	if !request.Pinned() && (admitted || steps < limit) {
		g.reasons.Add(key, reason)
	}
	return reason
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
			"the best, and one that it did not find may exist", logkey.Node, klog.KRef("", node.info.Name),
			logkey.Steps, placement.Steps, logkey.Found, placement.Fits, logkey.SilentFor, limitLogPeriod)
}
