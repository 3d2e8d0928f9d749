// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"context"
	"maps"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/scheduler/pluginhost"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Node returns the node's state: what is used from outside Kubernetes and what the holders hold,
// which must come in the order of their UIDs.
func (s *Set) Node(ctx context.Context, inventory *Inventory, holders []*Holder) (*Node, error) {
	info, missing := *inventory.info, inventory.missing
	holders = onInventory(inventory, holders)
	for _, plugin := range s.plugins {
		concerned := plugin.relevantHolders(inventory, holders)
		if len(concerned) == 0 {
			continue
		}
		used, err := plugin.take(ctx, inventory, &info, concerned)
		switch {
		case err == nil:
			info.Used = used
		case s.tolerates(err):
			missing = missing.add(plugin, err)
		default:
			return nil, err
		}
	}
	if s.groups || s.allocators {
		used := types.ResourceList{}
		maps.Copy(used, info.Used)
		for _, holder := range holders {
			grouptree.Take(used, s.accounted(holder.held))
		}
		info.Used = used
	}
	return newNode(inventory, &info, missing), nil
}

// Estimate is Node without a call of any plugin: what plugins alone account for counts as free, and
// nothing counts as used that is not.
func (s *Set) Estimate(inventory *Inventory, holders []*Holder) *Node {
	info, used := *inventory.info, types.ResourceList{}
	maps.Copy(used, info.Used)
	for _, holder := range onInventory(inventory, holders) {
		grouptree.Take(used, s.accounted(holder.held))
	}
	info.Used = used
	return newNode(inventory, &info, inventory.missing)
}

// take returns what is used after the plugin has taken the holders' resources. A plugin that
// translates is called once for each holder; one that is unavailable is called each time, which
// fails, also for holders that are cached.
func (h *handle) take(
	ctx context.Context, inventory *Inventory, info *types.NodeInfo, holders []*Holder,
) (types.ResourceList, error) {
	if h.translator == nil || !h.State().Calls() {
		return h.takeAll(ctx, info, holders)
	}
	used := types.ResourceList{}
	maps.Copy(used, info.Used)
	var unknown []*Holder
	for _, holder := range holders {
		if taken, known := holder.takenFor(h, inventory); known {
			add(used, taken)
		} else {
			unknown = append(unknown, holder)
		}
	}
	if len(unknown) == 0 {
		return used, nil
	}
	answers, err := h.takeEach(ctx, info, unknown)
	if err != nil {
		return nil, err
	}
	for i, taken := range answers {
		unknown[i].setTaken(h, inventory, taken)
		add(used, taken)
	}
	return used, nil
}

// takeEach returns what each holder takes by itself, according to a plugin that translates.
func (h *handle) takeEach(
	ctx context.Context, info *types.NodeInfo, holders []*Holder,
) ([]types.ResourceList, error) {
	passed := info.Clone()
	call := holdersCall(info.Name, holders)
	return pluginhost.Do(ctx, h.Plugin, call, func() ([]types.ResourceList, error) {
		taken := make([]types.ResourceList, len(holders))
		for i, holder := range holders {
			call.SetHolder(i)
			passed.Used = types.ResourceList{}
			if err := h.TakePodResources(passed, holder.Pod.Clone()); err != nil {
				return nil, err
			}
			taken[i] = maps.Clone(passed.Used)
		}
		return taken, nil
	})
}

// takeAll has the plugin take the resources of all holders.
func (h *handle) takeAll(ctx context.Context, info *types.NodeInfo, holders []*Holder) (types.ResourceList, error) {
	passed := info.Clone()
	if passed.Used == nil {
		passed.Used = types.ResourceList{}
	}
	call := holdersCall(info.Name, holders)
	return pluginhost.Do(ctx, h.Plugin, call, func() (types.ResourceList, error) {
		for i, holder := range holders {
			call.SetHolder(i)
			if err := h.TakePodResources(passed, holder.Pod.Clone()); err != nil {
				return nil, err
			}
		}
		return maps.Clone(passed.Used), nil
	})
}

// add adds quantities to a list.
func add(to, quantities types.ResourceList) {
	for name, quantity := range quantities {
		to[name] += quantity
	}
}

// holdersCall returns the call that has a plugin take the resources of holders.
func holdersCall(node string, holders []*Holder) *pluginhost.Call {
	about := make([]pluginhost.Holder, len(holders))
	for i, holder := range holders {
		about[i] = pluginhost.Holder{UID: holder.UID, Pod: holder.Pod.Name}
	}
	return &pluginhost.Call{
		Method: "TakePodResources", Subject: pluginhost.Subject{Node: node, Holders: about},
	}
}
