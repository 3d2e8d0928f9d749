// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/scheduler/claims/allocator"
)

// Filter reports whether the node has devices for all claims of the pod together.
//
// A rejection is Unschedulable where the pod would fit if no device were allocated: evicting pods
// may help. Upstream's plugin never says so.
func (p *Plugin) Filter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodeInfo fwk.NodeInfo) *fwk.Status {
	c := cycleOf(state)
	if c == nil {
		return p.upstream.Filter(ctx, state, pod, nodeInfo)
	}
	node := nodeInfo.Node()
	for _, pin := range c.pins {
		if !pin.nodes.Match(node) {
			c.notePinned()
			return fwk.NewStatus(fwk.UnschedulableAndUnresolvable,
				fmt.Sprintf("cannot use the devices that claim %q has", pin.claim))
		}
	}
	allocation, err := c.allocate(ctx, node, c.holds)
	var none *allocator.NoAllocation
	var left *allocator.ErrNotModelled
	switch {
	case err == nil:
		c.noteFit(node.Name, allocation.Score())
		return nil
	case errors.As(err, &left):
		return c.filterUpstream(ctx, pod, nodeInfo, err)
	case !errors.As(err, &none):
		return fwk.AsStatus(err)
	}
	code := fwk.UnschedulableAndUnresolvable
	if _, err := c.allocate(ctx, node, c.ours.Has); err == nil {
		code = fwk.Unschedulable
	}
	return c.reasons.status(code, node.Name, none)
}

// allocate searches the devices of a node.
func (c *cycle) allocate(
	ctx context.Context, node *v1.Node, allocated allocator.Allocated,
) (*allocator.Allocation, error) {
	reached, err := c.index.Node(node)
	if err != nil {
		return nil, notModelled(allocator.ReasonError, "%v", err)
	}
	return c.request.Allocate(ctx, reached, allocated)
}

// filterUpstream has upstream's plugin filter a node. Its answer does not depend on the pods that a
// simulation has removed.
func (c *cycle) filterUpstream(ctx context.Context, pod *v1.Pod, nodeInfo fwk.NodeInfo, why error) *fwk.Status {
	state, status := c.whole(ctx, pod)
	if !status.IsSuccess() {
		return status
	}
	if c.noteLeft(nodeInfo.Node().Name) {
		c.plugin.leave(ctx, pod, why)
	}
	return c.plugin.upstream.Filter(ctx, state, pod, nodeInfo)
}

// simulation reports whether this is a copy of the pod's cycle.
func (c *cycle) simulation() bool { return c.removed != nil }

func (c *cycle) notePinned() {
	c.found.mu.Lock()
	defer c.found.mu.Unlock()
	c.found.pinned = true
}

func (c *cycle) noteFit(node string, score int64) {
	if c.simulation() {
		return
	}
	c.found.mu.Lock()
	defer c.found.mu.Unlock()
	c.found.scores[node] = score
}

// noteLeft returns whether the node is the first of the cycle that is left to upstream.
func (c *cycle) noteLeft(node string) (first bool) {
	c.found.mu.Lock()
	defer c.found.mu.Unlock()
	first = c.found.left.Len() == 0
	c.found.left.Insert(node)
	return first
}

func (c *cycle) isLeft(node string) bool {
	c.found.mu.Lock()
	defer c.found.mu.Unlock()
	return c.found.left.Has(node)
}
