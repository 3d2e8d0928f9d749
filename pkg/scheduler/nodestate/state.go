// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/scheduler/dispatch"
)

// memo is what was computed last for a node.
type memo struct {
	key     memoKey
	devices *dispatch.Node
	holders map[types.UID]*holder
	// nominated are pods that are to be placed in simulation on top.
	nominated []*v1.Pod
}

type memoKey struct {
	uid        types.UID
	generation int64
	pods       int
	epoch      uint64
	revision   uint64
}

// holder is a pod that holds devices, and what that was read from.
type holder struct {
	*dispatch.Holder
	annotation string
}

// Of returns the node's devices and what the pods of nodeInfo hold of them, the pod itself left out. unmodified says that
// nodeInfo is of the scheduler's snapshot, and not a copy that a simulation has changed: only then is the answer
// remembered. The error says why the node's devices cannot be scheduled, without the node's name.
func (c *Cache) Of(ctx context.Context, nodeInfo fwk.NodeInfo, pod *v1.Pod, unmodified bool) (*dispatch.Node, error) {
	source := nodeInfo.Node()
	inv := c.sync(ctx, source)
	if inv.err != nil {
		return nil, inv.err
	}
	n := c.node(source.Name)
	reserved, epoch := n.reservations()
	key := memoKey{source.UID, nodeInfo.GetGeneration(), len(nodeInfo.GetPods()), epoch, inv.revision}
	last := n.last.Load()
	if last == nil || last.key != key || !unmodified {
		computed := &memo{key: key}
		var bound []types.UID
		computed.holders, computed.nominated, bound = holders(nodeInfo, reserved, last)
		devices, err := c.schedulers.Node(ctx, inv.devices, inOrder(computed.holders))
		if err != nil {
			return nil, err
		}
		computed.devices = devices
		for _, uid := range bound {
			// The pod's own annotation stands for it from here on: the answer is the same.
			n.seenBound(c, uid)
		}
		if unmodified {
			n.last.Store(computed)
		}
		last = computed
	}
	return c.withPods(ctx, inv, last, pod)
}

// withPods returns the state with the nominated pods placed on it and without the pod itself.
func (c *Cache) withPods(ctx context.Context, inv *inventory, state *memo, pod *v1.Pod) (*dispatch.Node, error) {
	if _, lists := state.holders[pod.UID]; !lists && len(state.nominated) == 0 {
		return state.devices, nil
	}
	present := maps.Clone(state.holders)
	delete(present, pod.UID)
	devices, err := c.schedulers.Node(ctx, inv.devices, inOrder(present))
	if err != nil {
		return nil, err
	}
	for _, nominated := range state.nominated {
		if nominated.UID == pod.UID {
			continue
		}
		request, err := c.Request(nominated)
		if err != nil || request == nil {
			continue
		}
		allocation, err := c.schedulers.Allocate(ctx, devices, request)
		if err != nil {
			// It will not be placed here, then.
			continue
		}
		placed := dispatch.NewHolder(string(nominated.UID), allocation, request.Containers)
		present[nominated.UID] = &holder{Holder: placed}
		if devices, err = c.schedulers.Node(ctx, inv.devices, inOrder(present)); err != nil {
			return nil, err
		}
	}
	return devices, nil
}

func inOrder(holders map[types.UID]*holder) []*dispatch.Holder {
	ordered := make([]*dispatch.Holder, 0, len(holders))
	for _, uid := range slices.Sorted(maps.Keys(holders)) {
		ordered = append(ordered, holders[uid].Holder)
	}
	return ordered
}
