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
// The NodeInfo's generation alone is no key: when a pod group is scheduled, the snapshot gets and
// loses assumed pods and keeps its generation. Those that hold devices have a reservation, so the
// epoch tells such states apart; the number of pods tells apart those between a pod's being assumed
// and its reservation.
type memoKey struct {
	node       types.UID
	generation int64
	pods       int
	epoch      uint64
	revision   uint64
}

func keyOf(nodeInfo fwk.NodeInfo, reserved *reservations, inv *inventory) memoKey {
	return memoKey{nodeInfo.Node().UID, nodeInfo.GetGeneration(), len(nodeInfo.GetPods()), reserved.epoch, inv.revision}
}

// Of returns the node's devices and what the pods of nodeInfo hold of them, the pod itself left
// out. unmodified says that nodeInfo is of the scheduler's snapshot, and not a copy that a
// simulation has changed: only then is the answer remembered. The error says why the node's devices
// cannot be scheduled, without the node's name.
func (c *Cache) Of(ctx context.Context, nodeInfo fwk.NodeInfo, pod *v1.Pod, unmodified bool) (*dispatch.Node, error) {
	inv, state, err := c.stateOf(ctx, nodeInfo, unmodified)
	if err != nil {
		return nil, err
	}
	return c.seenBy(ctx, inv, state, nil, pod)
}

// Latest is Of for the choice of the pod's devices, on a node of the scheduler's snapshot: it
// counts the reservations of pods that the snapshot does not list too, and says whether there are
// any. All pods of a pod group are assumed and reserved in one cycle, whose snapshot shows none of
// them.
func (c *Cache) Latest(ctx context.Context, nodeInfo fwk.NodeInfo, pod *v1.Pod) (devices *dispatch.Node, unlisted bool, err error) {
	inv, state, err := c.stateOf(ctx, nodeInfo, true)
	if err != nil {
		return nil, false, err
	}
	devices, err = c.seenBy(ctx, inv, state, state.unlisted, pod)
	return devices, len(state.unlisted) > 0, err
}

// stateOf returns the node's inventory and state, remembered or computed.
func (c *Cache) stateOf(ctx context.Context, nodeInfo fwk.NodeInfo, unmodified bool) (*inventory, *memo, error) {
	source := nodeInfo.Node()
	n, inv, err := c.current(ctx, source)
	if err != nil {
		return nil, nil, err
	}
	reserved := n.reservations()
	key := keyOf(nodeInfo, reserved, inv)
	state := n.last.Load()
	if state == nil || state.key != key || !unmodified {
		if state, err = c.compute(ctx, nodeInfo, inv, reserved, state); err != nil {
			return nil, nil, err
		}
		state.key = key
		if unmodified && state.devices.Whole() {
			n.last.Store(state)
		}
	}
	return inv, state, nil
}

// current returns what is known of the node, and its inventory as of this version of the Node or of
// a newer one.
func (c *Cache) current(ctx context.Context, source *v1.Node) (*node, *inventory, error) {
	n, inv := c.covering(source)
	if n == nil {
		inv = c.sync(ctx, source)
		n = c.find(source.Name)
	}
	if inv.err != nil {
		return nil, nil, inv.err
	}
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
	devices, err := c.devices(ctx, inv, now, last)
	if err != nil {
		return nil, err
	}
	if len(now.bound) > 0 {
		c.seenBound(nodeInfo.Node().Name, reserved, now.bound)
	}
	return &memo{census: now, devices: devices}, nil
}

// devices accounts for a census. Most changes of a node are none of what is held there: a pod that
// was reserved is seen bound, or one without devices comes.
func (c *Cache) devices(ctx context.Context, inv *inventory, now *census, last *memo) (*dispatch.Node, error) {
	if last != nil && last.key.revision == inv.revision && maps.Equal(last.holders, now.holders) && c.schedulers.Predictable() {
		return last.devices, nil
	}
	return c.schedulers.Node(ctx, inv.devices, inOrder(now.holders))
}

// seenBy returns the state without the pod itself, with more holders, and with the nominated pods
// placed on it.
func (c *Cache) seenBy(ctx context.Context, inv *inventory, state *memo, more map[types.UID]holder, pod *v1.Pod) (*dispatch.Node, error) {
	if _, holds := state.holders[pod.UID]; !holds && len(more)+len(state.nominated) == 0 {
		return state.devices, nil
	}
	present := maps.Clone(state.holders)
	maps.Copy(present, more)
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

// simulate places a nominated pod. It returns nil when the pod asks for no device, or will not come
// because it does not fit.
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
