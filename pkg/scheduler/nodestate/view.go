// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
)

// View is a node's devices and their holders as the informers have them, at any moment and outside
// of scheduling cycles. It is immutable and safe for concurrent use.
type View struct {
	// Devices is the node's state, for pods that tolerate every taint.
	Devices *allocation.Node
	// Holders are the pods that hold devices, in the order of their UIDs. What is kept for pods
	// in addition to what they hold (see ReserveMore) is not in it.
	Holders []*allocation.Holder
	// Bound says which of them are bound. The devices of the others are reserved.
	Bound map[types.UID]bool

	inventory *inventory
	all       []*allocation.Holder // Holders, and what is kept
}

// Estimate returns the node's state with what these pods hold, which are bound to it, as far as it
// is known at once: without calling a plugin, and without reading much. What is not known counts
// as free; so do reservations, since a pod that has one may still be rejected, and no event reports
// that. It returns nil when the inventory of this version of the Node is not known yet. Pods that
// are left out count as if they had been evicted.
//
// It is for the pod. Only that for pods that tolerate no taint and choose no devices is cached.
func (c *Cache) Estimate(source *v1.Node, pods []*v1.Pod, pod *v1.Pod) (*allocation.Node, error) {
	n, inv := c.currentFor(source)
	switch {
	case n == nil:
		return nil, nil
	case inv.err != nil:
		return nil, inv.err
	}
	mine := inv.knownFor(pod)
	if mine == nil {
		return nil, nil
	}
	key := estimateKey{source.UID, inv.revision, fingerprint(pods)}
	if mine == inv.devices {
		if known, ok := c.estimates.Get(key); ok {
			return known, nil
		}
	}
	last, unread := n.last.Load(), 0
	all := make(map[types.UID]holder, len(pods))
	for _, bound := range pods {
		held, known := c.knownAllocation(bound, inv, last)
		if size := len(bound.Annotations[deviceinfo.Annotation]); !known {
			if unread += size; unread > request.QuickBytes {
				continue
			}
			held = c.readAllocation(bound, inv, last)
		}
		if held.Holder != nil {
			all[bound.UID] = held
		}
	}
	devices := c.schedulers.Estimate(mine, inOrder(all))
	if unread <= request.QuickBytes && mine == inv.devices {
		c.estimates.Add(key, devices)
	}
	return devices, nil
}

// View returns the node's devices and what these pods, which are bound to it, hold of them, and
// what is reserved. The error says why the node's devices cannot be scheduled, without the node's
// name.
func (c *Cache) View(ctx context.Context, source *v1.Node, pods []*v1.Pod) (*View, error) {
	n, inv, err := c.current(ctx, source)
	if err != nil {
		return nil, err
	}
	all, bound := map[types.UID]holder{}, map[types.UID]bool{}
	for uid, r := range n.reservations().pods {
		all[uid] = r.asHolder()
	}
	last := n.last.Load()
	for _, pod := range pods {
		delete(all, pod.UID)
		if held, ok := c.heldBy(pod, inv, last); ok {
			all[pod.UID], bound[pod.UID] = held, true
		}
	}
	ordered := inOrder(all)
	for i, holder := range ordered {
		ordered[i] = holder.ByNamesOf(inv.devices)
	}
	view := &View{all: ordered, Bound: bound, inventory: inv}
	view.Holders = slices.DeleteFunc(slices.Clone(ordered), func(h *allocation.Holder) bool {
		return isReplacement(types.UID(h.UID))
	})
	view.Devices, err = c.DevicesFor(ctx, view, &v1.Pod{Spec: v1.PodSpec{Tolerations: everyTaint}})
	return view, err
}

// DevicesFor returns the node's state in a view for a pod.
func (c *Cache) DevicesFor(ctx context.Context, view *View, pod *v1.Pod) (*allocation.Node, error) {
	devices, err := view.inventory.devicesFor(ctx, c.schedulers, pod)
	if err != nil {
		return nil, err
	}
	return c.schedulers.Node(ctx, devices, view.all)
}
