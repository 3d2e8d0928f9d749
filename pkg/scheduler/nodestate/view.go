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
// all scheduling cycles. It is immutable and safe for concurrent use.
type View struct {
	key viewKey
	// Devices is the node's state.
	Devices *dispatch.Node
	// Holders are the pods that hold devices, in the order of their UIDs.
	Holders []*dispatch.Holder
	// Bound says which of them are bound. The others are on their way to the node: their devices
	// are reserved.
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

// Look returns the node's devices and what these pods, which are bound to it, hold of them.
// Reservations are left out: a pod that has one may yet be turned away, of which no event tells.
// The last answer is remembered. The error says why the node's devices cannot be scheduled, without
// the node's name.
func (c *Cache) View(ctx context.Context, source *v1.Node, pods []*v1.Pod) (*View, error) {
	n, inv, err := c.current(ctx, source)
	if err != nil {
		return nil, err
	}
	key := viewKey{source.UID, inv.revision, fingerprint(pods)}
	if seen := n.seen.Load(); seen != nil && seen.key == key {
		return seen, nil
	}
	seen, err := c.look(ctx, n, inv, pods, nil)
	if err != nil {
		return nil, err
	}
	seen.key = key
	if seen.Devices.Whole() {
		n.seen.Store(seen)
	}
	return seen, nil
}

// ViewReserved is Look with the reservations.
func (c *Cache) ViewReserved(ctx context.Context, source *v1.Node, pods []*v1.Pod) (*View, error) {
	n, inv, err := c.current(ctx, source)
	if err != nil {
		return nil, err
	}
	return c.look(ctx, n, inv, pods, n.reservations())
}

// look takes the census of these pods and of those that have a reservation.
func (c *Cache) look(ctx context.Context, n *node, inv *inventory, pods []*v1.Pod, reserved *reservations) (*View, error) {
	holders, bound := map[types.UID]holder{}, map[types.UID]bool{}
	if reserved != nil {
		for uid, r := range reserved.pods {
			holders[uid] = holder{r.holder, r.annotation}
		}
	}
	var known *census
	if last := n.last.Load(); last != nil {
		known = last.census
	}
	for _, pod := range pods {
		delete(holders, pod.UID)
		if held, ok := allocationOf(pod, known); ok {
			holders[pod.UID], bound[pod.UID] = held, true
		}
	}
	ordered := inOrder(holders)
	devices, err := c.schedulers.Node(ctx, inv.devices, ordered)
	if err != nil {
		return nil, err
	}
	return &View{Devices: devices, Holders: ordered, Bound: bound}, nil
}
