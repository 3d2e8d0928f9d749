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

// Inventory is a node's devices as the plugins left them. It is immutable and safe for concurrent use.
type Inventory struct {
	info   *types.NodeInfo
	groups *grouptree.DeviceTree
	gaps   gaps
}

// PlainNames returns the plain resource names that the node lists, sorted: a pod that requests one of them by count is a
// device pod.
func (inv *Inventory) PlainNames() []types.ResourceName {
	names := slices.DeleteFunc(slices.Collect(maps.Keys(inv.info.Capacity)), resource.IsGroupResourceName)
	slices.Sort(names)
	return names
}

// AddNode tells every plugin of the node and compiles what they leave. info is taken over. After ErrNoAnswer, and when the
// inventory is not whole, it may be called again after a pause, and tells them all again.
func (s *Set) AddNode(ctx context.Context, info *types.NodeInfo) (*Inventory, error) {
	var missing gaps
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
	groups, err := grouptree.CompileDeviceTree(info.Allocatable, info.Scorer)
	if err != nil {
		return nil, err
	}
	return &Inventory{info: info, groups: groups, gaps: missing}, nil
}

// RemoveNode tells every plugin that the node is gone. A plugin that cannot take it is logged.
func (s *Set) RemoveNode(ctx context.Context, name string) {
	for _, plugin := range s.plugins {
		plugin.forget(name)
		_, err := do(ctx, plugin, &call{method: "RemoveNode", node: name}, func() (struct{}, error) {
			defer plugin.updateRevision(s.announceRetranslation)
			plugin.RemoveNode(name)
			return struct{}{}, nil
		})
		if err != nil {
			klog.FromContext(ctx).Error(err, "Device scheduler was not told that a node is gone", "node", klog.KRef("", name))
		}
	}
}
