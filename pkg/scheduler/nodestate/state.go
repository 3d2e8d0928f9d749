// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/cache"
	requestnames "github.com/kubedevice/kubedevice/pkg/request/names"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
)

func versionOf(nodeInfo fwk.NodeInfo, reserved *reservations, inv *inventory) version {
	return version{nodeInfo.GetGeneration(), len(nodeInfo.GetPods()), reserved.epoch, inv.revision}
}

// State returns the node's devices and what the pods of nodeInfo hold of them, the pod itself
// excluded. unmodified says that nodeInfo is of the scheduler's snapshot, and not a copy that a
// simulation has changed: only then is the state cached. The error says why the node's devices
// cannot be scheduled, without the node's name.
func (c *Cache) State(
	ctx context.Context, nodeInfo fwk.NodeInfo, pod *v1.Pod, unmodified bool,
) (*allocation.Node, error) {
	inv, current, err := c.stateOf(ctx, nodeInfo, unmodified)
	if err != nil {
		return nil, err
	}
	return c.stateFor(ctx, inv, current, nil, pod)
}

// LatestState is State for the choice of the pod's devices, on a node of the scheduler's snapshot:
// it also counts the reservations of pods that the snapshot does not list, and reports whether
// there are any. All pods of a pod group are assumed and reserved in one cycle, whose snapshot
// shows none of them.
func (c *Cache) LatestState(
	ctx context.Context, nodeInfo fwk.NodeInfo, pod *v1.Pod,
) (devices *allocation.Node, unlisted bool, err error) {
	inv, current, err := c.stateOf(ctx, nodeInfo, true)
	if err != nil {
		return nil, false, err
	}
	devices, err = c.stateFor(ctx, inv, current, current.unlisted, pod)
	return devices, len(current.unlisted) > 0, err
}

// stateOf returns the node's inventory and state, cached or computed.
func (c *Cache) stateOf(ctx context.Context, nodeInfo fwk.NodeInfo, unmodified bool) (*inventory, *state, error) {
	n, inv, err := c.current(ctx, nodeInfo.Node())
	if err != nil {
		return nil, nil, err
	}
	reserved, last := n.reservations(), n.last.Load()
	now := versionOf(nodeInfo, reserved, inv)
	if unmodified && last != nil && last.version == now {
		return inv, last, nil
	}
	computed := &state{version: now, holders: c.holdersOf(nodeInfo, reserved, inv, last)}
	if computed.devices, err = c.devices(ctx, inv, computed, last); err != nil {
		return nil, nil, err
	}
	if inv.taints != nil || c.choosing.Load() {
		computed.variants = cache.New[*allocation.Inventory, *allocation.Node](variantEntries)
	}
	if len(computed.bound) > 0 {
		c.dropBound(nodeInfo.Node().Name, reserved, computed.bound)
	}
	if unmodified && computed.devices.Complete() {
		n.last.Store(computed)
	}
	return inv, computed, nil
}

// current returns what is known of the node, and its inventory as of this version of the Node or of
// a newer one.
func (c *Cache) current(ctx context.Context, source *v1.Node) (*node, *inventory, error) {
	n, inv := c.currentFor(source)
	if n == nil {
		inv = c.sync(ctx, source)
		n = c.find(source.Name)
	}
	if inv.err != nil {
		return nil, nil, inv.err
	}
	if n == nil {
		return nil, nil, nodeDeleted.err
	}
	return n, inv, nil
}

// devices accounts for the holders. Most changes of a node leave them as they are: a pod that was
// reserved is seen bound, or one without devices comes.
func (c *Cache) devices(ctx context.Context, inv *inventory, now, last *state) (*allocation.Node, error) {
	if last != nil && last.revision == now.revision && maps.Equal(last.present, now.present) &&
		c.schedulers.Predictable() {
		return last.devices, nil
	}
	return c.schedulers.Node(ctx, inv.devices, inOrder(now.present))
}

// stateFor returns the state without the pod itself, with more holders, and with the nominated pods
// placed on it.
func (c *Cache) stateFor(
	ctx context.Context, inv *inventory, current *state, more map[types.UID]holder, pod *v1.Pod,
) (*allocation.Node, error) {
	if !c.choosing.Load() && !requestnames.ChoiceOf(pod).Any() {
		c.choosing.Store(true)
	}
	mine, err := inv.devicesFor(ctx, c.schedulers, pod)
	if err != nil {
		return nil, err
	}
	if _, holds := current.present[pod.UID]; !holds && len(more)+len(current.nominated) == 0 {
		return c.stateOn(ctx, mine, inv, current)
	}
	present := maps.Clone(current.present)
	maps.Copy(present, more)
	delete(present, pod.UID)
	return c.withNominated(ctx, inv, mine, current, present, pod.UID)
}

// stateOn returns the state with the devices that a pod may have.
func (c *Cache) stateOn(
	ctx context.Context, devices *allocation.Inventory, inv *inventory, current *state,
) (*allocation.Node, error) {
	if devices == inv.devices {
		return current.devices, nil
	}
	if current.variants == nil { // it was computed before a pod chose devices
		return c.schedulers.Node(ctx, devices, inOrder(current.present))
	}
	if known, ok := current.variants.Get(devices); ok {
		return known, nil
	}
	made, err := c.schedulers.Node(ctx, devices, inOrder(current.present))
	if err == nil && made.Complete() {
		current.variants.Add(devices, made)
	}
	return made, err
}
