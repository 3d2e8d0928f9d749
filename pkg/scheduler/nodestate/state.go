// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/scheduler/dispatch"
)

// memo is what was computed last for a node. It is immutable.
type memo struct {
	key memoKey
	*census
	devices *dispatch.Node // without the nominated pods
}

// memoKey identifies a state of a node of the scheduler's snapshot.
//
// The NodeInfo's generation alone is no key: when a pod group is scheduled, the snapshot gets and loses assumed pods and
// keeps its generation. Those that hold devices have a reservation, so the epoch tells such states apart; the number of
// pods tells apart those between a pod's being assumed and its reservation.
type memoKey struct {
	node       types.UID
	generation int64
	pods       int
	epoch      uint64
	revision   uint64
}

// Of returns the node's devices and what the pods of nodeInfo hold of them, the pod itself left out. unmodified says that
// nodeInfo is of the scheduler's snapshot, and not a copy that a simulation has changed: only then is the answer
// remembered. The error says why the node's devices cannot be scheduled, without the node's name.
func (c *Cache) Of(ctx context.Context, nodeInfo fwk.NodeInfo, pod *v1.Pod, unmodified bool) (*dispatch.Node, error) {
	source := nodeInfo.Node()
	n, inv, err := c.current(ctx, source)
	if err != nil {
		return nil, err
	}
	reserved := n.reservations()
	key := memoKey{source.UID, nodeInfo.GetGeneration(), len(nodeInfo.GetPods()), reserved.epoch, inv.revision}
	state := n.last.Load()
	if state == nil || state.key != key || !unmodified {
		if state, err = c.compute(ctx, nodeInfo, inv, reserved, state); err != nil {
			return nil, err
		}
		state.key = key
		if unmodified && state.devices.Whole() {
			n.last.Store(state)
		}
	}
	return c.seenBy(ctx, inv, state, pod)
}

// current returns what is known of the node, and its inventory as of this version of the Node or of a newer one.
func (c *Cache) current(ctx context.Context, source *v1.Node) (*node, *inventory, error) {
	inv := c.sync(ctx, source)
	if inv.err != nil {
		return nil, nil, inv.err
	}
	n := c.find(source.Name)
	if n == nil {
		return nil, nil, gone.err
	}
	return n, inv, nil
}

// compute takes the census of the node and accounts for it.
func (c *Cache) compute(ctx context.Context, nodeInfo fwk.NodeInfo, inv *inventory, reserved *reservations, last *memo) (*memo, error) {
	var known *census
	if last != nil {
		known = last.census
	}
	now := count(nodeInfo, reserved, known)
	devices, err := c.schedulers.Node(ctx, inv.devices, inOrder(now.holders))
	if err != nil {
		return nil, err
	}
	if len(now.bound) > 0 {
		c.seenBound(nodeInfo.Node().Name, reserved, now.bound)
	}
	return &memo{census: now, devices: devices}, nil
}

// seenBy returns the state without the pod itself, and with the nominated pods placed on it.
func (c *Cache) seenBy(ctx context.Context, inv *inventory, state *memo, pod *v1.Pod) (*dispatch.Node, error) {
	if _, holds := state.holders[pod.UID]; !holds && len(state.nominated) == 0 {
		return state.devices, nil
	}
	present := maps.Clone(state.holders)
	delete(present, pod.UID)
	devices, err := c.schedulers.Node(ctx, inv.devices, inOrder(present))
	for _, nominated := range state.nominated {
		if err != nil {
			return nil, err
		}
		if nominated.UID == pod.UID {
			continue
		}
		if placed := c.simulate(ctx, devices, nominated); placed != nil {
			present[nominated.UID] = holder{Holder: placed}
			devices, err = c.schedulers.Node(ctx, inv.devices, inOrder(present))
		}
	}
	return devices, err
}

// simulate places a nominated pod. It returns nil when the pod asks for no device, or will not come because it does not
// fit.
func (c *Cache) simulate(ctx context.Context, devices *dispatch.Node, nominated *v1.Pod) *dispatch.Holder {
	request, err := c.Request(nominated)
	if err != nil || request == nil {
		return nil
	}
	allocation, err := c.schedulers.Allocate(ctx, devices, request)
	if err != nil {
		return nil
	}
	return dispatch.NewHolder(string(nominated.UID), allocation, request.Containers)
}
