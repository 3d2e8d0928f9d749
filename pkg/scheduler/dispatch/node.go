// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"maps"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Holder is a pod that holds devices of a node. It is immutable.
type Holder struct {
	// UID is the pod's UID.
	UID string
	// Pod is the pod's allocation.
	Pod *types.PodInfo
	// held are the group resources that the pod holds.
	held types.ResourceList
}

// NewHolder returns the holder for an allocation. pod is taken over.
func NewHolder(uid string, pod *types.PodInfo, containers []grouptree.Container) *Holder {
	return &Holder{UID: uid, Pod: pod, held: grouptree.Holdings(pod, containers)}
}

// Node is a node's devices and what is used of them at one moment. It is immutable and safe for concurrent use.
type Node struct {
	inventory *Inventory
	// info is what plugins see a copy of.
	info *types.NodeInfo
	// used is what the group scheduler sees, by the inventory's indices.
	used []int64
}

// Node returns the node's state: what is used from outside Kubernetes and what the holders hold, which must come in the
// order of their UIDs.
func (s *Set) Node(ctx context.Context, inventory *Inventory, holders []*Holder) (*Node, error) {
	info := *inventory.info
	info.Used = maps.Clone(info.Used)
	if info.Used == nil {
		info.Used = types.ResourceList{}
	}
	for _, plugin := range s.plugins {
		if len(holders) == 0 {
			break
		}
		given := info.Clone()
		used, err := call(ctx, plugin, "TakePodResources", func() (types.ResourceList, error) {
			for _, holder := range holders {
				if err := plugin.TakePodResources(given, holder.Pod.Clone()); err != nil {
					return nil, err
				}
			}
			return maps.Clone(given.Used), nil
		})
		if err != nil {
			return nil, err
		}
		info.Used = used
	}
	if s.groups {
		for _, holder := range holders {
			grouptree.Take(info.Used, holder.held)
		}
	}
	return &Node{inventory: inventory, info: &info, used: inventory.groups.Dense(info.Used)}, nil
}
