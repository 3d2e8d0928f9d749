// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"context"
	"maps"
	"sync"

	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/scheduler/pluginhost"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// AddNode reports the node to every plugin and compiles what they make of it. The caller no longer
// uses info. After ErrNoAnswer, and when the inventory is not complete, AddNode may be called again
// after a pause, and reports the node to all plugins again.
func (s *Set) AddNode(ctx context.Context, info *types.NodeInfo) (*Inventory, error) {
	var missing missingPlugins
	devices, allocated := s.deviceNames(info), map[types.ResourceName]bool{}
	read := map[*handle]NodeDevices{}
	hideKubelets(info, devices)
	for _, plugin := range s.plugins {
		plugin.Forget(info.Name)
		passed := info.Clone()
		left, err := call(ctx, plugin, pluginhost.MethodAddNode, info.Name, func() (added, error) {
			defer plugin.updateRevision(s.announceRetranslation)
			plugin.AddNode(passed.Name, passed)
			left := added{allocatable: maps.Clone(passed.Allocatable)}
			if plugin.allocator != nil {
				left.read = plugin.allocator.Read(passed)
			}
			return left, nil
		})
		switch {
		case err == nil:
			info.Allocatable = left.allocatable
			if left.read != nil {
				read[plugin] = left.read
				maps.Copy(allocated, left.read.Resources())
			}
		case s.tolerates(err):
			missing = missing.add(plugin, err)
			if plugin.allocator != nil { // any of them may be its own
				maps.Copy(allocated, devices)
			}
		default:
			return nil, err
		}
	}
	tree, err := grouptree.CompileDeviceTree(info.Allocatable, info.Scorer)
	if err != nil {
		return nil, err
	}
	longest := 0
	for name := range info.Allocatable {
		longest = max(longest, len(name))
	}
	return &Inventory{
		info: info, tree: tree, longest: longest, missing: missing, devices: devices, allocated: allocated, read: read,
		counted: s.counters(tree), byDevice: sync.OnceValue(func() map[deviceResource]types.ResourceName {
			return indexByDevice(info)
		}),
	}, nil
}

// added is what a plugin makes of a node that is reported to it.
type added struct {
	allocatable types.ResourceList
	read        NodeDevices // of an allocator
}

// RemoveNode reports to every plugin that the node is gone. A plugin that fails is logged.
func (s *Set) RemoveNode(ctx context.Context, name string) {
	for _, plugin := range s.plugins {
		plugin.Forget(name)
		_, err := call(ctx, plugin, "RemoveNode", name, func() (struct{}, error) {
			defer plugin.updateRevision(s.announceRetranslation)
			plugin.RemoveNode(name)
			return struct{}{}, nil
		})
		if err != nil {
			klog.FromContext(ctx).Error(err, "Cannot report a removed node to a device scheduler", logkey.Node,
				klog.KRef("", name))
		}
	}
}

// WithAllocatable returns an inventory in which other quantities of some resources are allocatable,
// which it lists. No plugin is reported a node: for them, the node stays as it was reported.
//
// With anyDevices, requests are those of pods that have waited for the best devices
// of all nodes for long enough: what is best was found without the devices that only this inventory
// has.
func (s *Set) WithAllocatable(
	ctx context.Context, inv *Inventory, quantities types.ResourceList, anyDevices bool,
) (*Inventory, error) {
	info, other := *inv.info, *inv
	info.Allocatable = maps.Clone(info.Allocatable)
	maps.Copy(info.Allocatable, quantities)
	tree, err := grouptree.CompileDeviceTree(info.Allocatable, info.Scorer)
	if err != nil {
		return nil, err
	}
	other.info, other.tree, other.counted, other.anyDevices = &info, tree, s.counters(tree), anyDevices
	other.read = map[*handle]NodeDevices{}
	for plugin := range inv.read {
		read, err := call(ctx, plugin, "Read", info.Name, func() (NodeDevices, error) {
			return plugin.allocator.Read(&info), nil
		})
		switch {
		case err == nil:
			other.read[plugin] = read
		case s.tolerates(err):
			other.missing = other.missing.add(plugin, err)
		default:
			return nil, err
		}
	}
	return &other, nil
}

// deviceNames returns the extended resources that are devices on a node: those that its inventory
// lists, and those that a plugin claims and the kubelet does not count. An inventory is a node's
// own word, and so it is about this node only.
func (s *Set) deviceNames(node *types.NodeInfo) deviceNames {
	names := deviceNames{}
	for name := range node.Capacity {
		if resource.IsExtendedResource(name) {
			names[name] = true
		}
	}
	for name := range s.claimed {
		if node.KubeCap[name] <= 0 && node.KubeAlloc[name] <= 0 {
			names[name] = true
		}
	}
	return names
}

// counters returns the plain resource that counts each resource of a tree which is an allocator's
// device, and "" for all others.
func (s *Set) counters(tree *grouptree.DeviceTree) []types.ResourceName {
	counted := make([]types.ResourceName, tree.Len())
	for _, plugin := range s.plugins {
		if plugin.allocator == nil {
			continue
		}
		for i := range counted {
			if name, ok := plugin.allocator.Allocates(tree.Name(i)); ok {
				counted[i] = name
			}
		}
	}
	return counted
}
