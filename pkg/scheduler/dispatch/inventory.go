// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"maps"
	"slices"

	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Inventory is a node's devices as the plugins left them. It is immutable and safe for concurrent
// use.
type Inventory struct {
	info    *types.NodeInfo
	tree    *grouptree.DeviceTree
	missing missingPlugins
}

// PlainNames returns the plain resource names that the node lists, sorted: a pod that requests one
// of them by count is a device pod.
func (inv *Inventory) PlainNames() []types.ResourceName {
	names := slices.DeleteFunc(slices.Collect(maps.Keys(inv.info.Capacity)), resource.IsGroupResourceName)
	slices.Sort(names)
	return names
}

// AddNode reports the node to every plugin and compiles what they make of it. The caller no longer
// uses info. After ErrNoAnswer, and when the inventory is not complete, AddNode may be called again
// after a pause, and reports the node to all plugins again.
func (s *Set) AddNode(ctx context.Context, info *types.NodeInfo) (*Inventory, error) {
	var missing missingPlugins
	for _, plugin := range s.plugins {
		plugin.forget(info.Name)
		given := info.Clone()
		left, err := do(ctx, plugin, &call{method: "AddNode", node: info.Name}, func() (types.ResourceList, error) {
			defer plugin.updateRevision(s.announceRetranslation)
			plugin.AddNode(given.Name, given)
			return maps.Clone(given.Allocatable), nil
		})
		switch {
		case err == nil:
			info.Allocatable = left
		case s.tolerates(err):
			missing = missing.with(plugin, err)
		default:
			return nil, err
		}
	}
	tree, err := grouptree.CompileDeviceTree(info.Allocatable, info.Scorer)
	if err != nil {
		return nil, err
	}
	return &Inventory{info: info, tree: tree, missing: missing}, nil
}

// RemoveNode reports to every plugin that the node is gone. A plugin that fails is logged.
func (s *Set) RemoveNode(ctx context.Context, name string) {
	for _, plugin := range s.plugins {
		plugin.forget(name)
		_, err := do(ctx, plugin, &call{method: "RemoveNode", node: name}, func() (struct{}, error) {
			defer plugin.updateRevision(s.announceRetranslation)
			plugin.RemoveNode(name)
			return struct{}{}, nil
		})
		if err != nil {
			klog.FromContext(ctx).Error(err, "A device scheduler does not know that a node is gone", "node",
				klog.KRef("", name))
		}
	}
}
