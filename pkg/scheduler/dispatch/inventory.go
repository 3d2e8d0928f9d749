// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/scheduler/pluginhost"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Inventory is a node's devices as the plugins left them. It is immutable and safe for concurrent
// use.
type Inventory struct {
	info    *types.NodeInfo
	tree    *grouptree.DeviceTree
	missing missingPlugins
	// devices are the extended resources that are devices on the node, and allocated those of them
	// that an allocator serves.
	devices   *deviceNames
	allocated map[types.ResourceName]bool
	read      map[*handle]NodeDevices // by allocator; none of one that did not answer
	counted   []types.ResourceName    // see counters
	// undemanding says that pods take the best devices of this node, see WithAllocatable.
	undemanding bool
	// byDevice has the names of the node's resources by device, whichever groups it is in.
	byDevice func() map[deviceResource]types.ResourceName
}

// deviceResource is a resource of a device that has its ID and its level.
type deviceResource struct{ level, id, name string }

func deviceResourceOf(path resource.Path) deviceResource {
	return deviceResource{path.DeviceLevel(), path.DeviceID(), path.Resource()}
}

// indexByDevice returns the names of resources by device: those that plugins left, which may have
// added groups, and of other devices those that the node has. Names of several devices are empty.
func indexByDevice(info *types.NodeInfo) map[deviceResource]types.ResourceName {
	index := make(map[deviceResource]types.ResourceName, len(info.Allocatable))
	for _, list := range []types.ResourceList{info.Allocatable, info.Capacity} {
		found := map[deviceResource]types.ResourceName{}
		for name := range list {
			if path, err := resource.ParsePath(name); err == nil && path.Depth() > 0 {
				of := deviceResourceOf(path)
				if _, several := found[of]; several {
					name = ""
				}
				found[of] = name
			}
		}
		for of, name := range found {
			if _, known := index[of]; !known {
				index[of] = name
			}
		}
	}
	return index
}

// currentName returns the node's name of the resource, or the name itself if the node has none or
// several.
func (inv *Inventory) currentName(name types.ResourceName) types.ResourceName {
	if _, has := inv.info.Allocatable[name]; has {
		return name
	}
	path, err := resource.ParsePath(name)
	if err != nil || path.Depth() == 0 {
		return name
	}
	return cmp.Or(inv.byDevice()[deviceResourceOf(path)], name)
}

// PlainNames returns the extended resources that the node lists as devices, sorted: a pod that
// requests one of them by count is a device pod there.
func (inv *Inventory) PlainNames() []types.ResourceName {
	names := slices.DeleteFunc(slices.Collect(maps.Keys(inv.info.Capacity)), isNotExtended)
	slices.Sort(names)
	return names
}

func isNotExtended(name types.ResourceName) bool { return !resource.IsExtendedResource(name) }

// Counts reports whether an extended resource is a device on the node. Otherwise its kubelet counts
// it, if it has any.
func (inv *Inventory) Counts(name types.ResourceName) bool { return (*inv.devices)[name] }

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
		given := info.Clone()
		left, err := call(ctx, plugin, pluginhost.MethodAddNode, info.Name, func() (added, error) {
			defer plugin.updateRevision(s.announceRetranslation)
			plugin.AddNode(given.Name, given)
			left := added{allocatable: maps.Clone(given.Allocatable)}
			if plugin.allocator != nil {
				left.read = plugin.allocator.Read(given)
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
			missing = missing.with(plugin, err)
			if plugin.allocator != nil { // any of them may be its own
				maps.Copy(allocated, *devices)
			}
		default:
			return nil, err
		}
	}
	tree, err := grouptree.CompileDeviceTree(info.Allocatable, info.Scorer)
	if err != nil {
		return nil, err
	}
	return &Inventory{
		info: info, tree: tree, missing: missing, devices: devices, allocated: allocated, read: read,
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
			klog.FromContext(ctx).Error(err, "A device scheduler does not know that a node is gone", logkey.Node,
				klog.KRef("", name))
		}
	}
}
