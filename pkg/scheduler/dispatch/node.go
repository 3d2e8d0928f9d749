// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Node is a node's devices and what is used of them at one moment. It is immutable and safe for concurrent use.
type Node struct {
	inventory *Inventory
	// info is what plugins see a copy of.
	info *types.NodeInfo
	// used is what the group scheduler sees, by the inventory's indices.
	used []int64
	// digest is of info. It is computed when it is asked for.
	digest func() digest
	gaps   gaps
}

// Node returns the node's state: what is used from outside Kubernetes and what the holders hold, which must come in the
// order of their UIDs.
func (s *Set) Node(ctx context.Context, inventory *Inventory, holders []*Holder) (*Node, error) {
	info, missing := *inventory.info, inventory.gaps
	for _, plugin := range s.plugins {
		concerned := plugin.concerned(inventory, holders)
		if len(concerned) == 0 {
			continue
		}
		used, err := plugin.take(ctx, inventory, &info, concerned)
		switch {
		case err == nil:
			info.Used = used
		case s.tolerates(err):
			missing = missing.with(plugin, err)
		default:
			return nil, err
		}
	}
	if s.groups || s.chooser != nil {
		used := types.ResourceList{}
		maps.Copy(used, info.Used)
		for _, holder := range holders {
			grouptree.Take(used, s.accounted(holder.held))
		}
		info.Used = used
	}
	return &Node{
		inventory: inventory,
		info:      &info,
		used:      inventory.groups.Dense(info.Used),
		digest:    sync.OnceValue(func() digest { return nodeDigest(&info) }),
		gaps:      missing,
	}, nil
}

// concerned returns the holders that the plugin has to do with.
func (c *contained) concerned(inventory *Inventory, holders []*Holder) []*Holder {
	switch {
	case c.kinds == nil:
		return holders
	case c.chooser != nil: // the group scheduler accounts for all that it chose
		return nil
	}
	return slices.DeleteFunc(slices.Clone(holders), func(holder *Holder) bool {
		_, known := holder.takenFor(c, inventory)
		return !known && !c.kinds.concern(holder.Pod)
	})
}
