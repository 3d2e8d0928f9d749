// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"hash/maphash"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/pkg/scheduler/dispatch"
)

// View is a node's devices and their holders as the informers have them, at any moment and outside
// of scheduling cycles. It is immutable and safe for concurrent use.
type View struct {
	key viewKey
	// Devices is the node's state.
	Devices *dispatch.Node
	// Holders are the pods that hold devices, in the order of their UIDs.
	Holders []*dispatch.Holder
	// Bound says which of them are bound. The devices of the others are reserved.
	Bound map[types.UID]bool
}

// viewKey identifies a state of a node in the informers.
type viewKey struct {
	node     types.UID
	revision uint64
	pods     uint64
}

// seed is that of fingerprints.
var seed = maphash.MakeSeed()

// fingerprint identifies versions of pods, in any order.
func fingerprint(pods []*v1.Pod) uint64 {
	type version struct {
		uid     types.UID
		version string
	}
	sum := uint64(len(pods))
	for _, pod := range pods {
		sum += maphash.Comparable(seed, version{pod.UID, pod.ResourceVersion})
	}
	return sum
}

// View returns the node's devices and what these pods, which are bound to it, hold of them. It has
// no reservations: a pod that has one may still be rejected, and no event reports that. The last
// view of a node is cached. The error says why the node's devices cannot be scheduled, without the
// node's name.
func (c *Cache) View(ctx context.Context, source *v1.Node, pods []*v1.Pod) (*View, error) {
	n, inv, err := c.current(ctx, source)
	if err != nil {
		return nil, err
	}
	key := viewKey{source.UID, inv.revision, fingerprint(pods)}
	if cached := n.view.Load(); cached != nil && cached.key == key {
		return cached, nil
	}
	view, err := c.newView(ctx, n, inv, pods, nil)
	if err != nil {
		return nil, err
	}
	view.key = key
	if view.Devices.Complete() {
		n.view.Store(view)
	}
	return view, nil
}

// ViewReserved is View with the reservations, and without the cache.
func (c *Cache) ViewReserved(ctx context.Context, source *v1.Node, pods []*v1.Pod) (*View, error) {
	n, inv, err := c.current(ctx, source)
	if err != nil {
		return nil, err
	}
	return c.newView(ctx, n, inv, pods, n.reservations())
}

func (c *Cache) newView(
	ctx context.Context, n *node, inv *inventory, pods []*v1.Pod, reserved *reservations,
) (*View, error) {
	all, bound := map[types.UID]holder{}, map[types.UID]bool{}
	if reserved != nil {
		for uid, r := range reserved.pods {
			all[uid] = r.asHolder()
		}
	}
	last := n.last.Load()
	for _, pod := range pods {
		delete(all, pod.UID)
		if held, ok := allocationOf(pod, last); ok {
			all[pod.UID], bound[pod.UID] = held, true
		}
	}
	ordered := inOrder(all)
	devices, err := c.schedulers.Node(ctx, inv.devices, ordered)
	if err != nil {
		return nil, err
	}
	return &View{Devices: devices, Holders: ordered, Bound: bound}, nil
}
