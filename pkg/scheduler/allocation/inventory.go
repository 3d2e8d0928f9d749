// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"cmp"
	"iter"
	"maps"
	"slices"

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
	// devices are the extended resources that are devices on the node, and allocated those of them
	// that an allocator serves.
	devices   deviceNames
	allocated map[types.ResourceName]bool
	read      map[*handle]NodeDevices // by allocator; none of one that did not answer
	counted   []types.ResourceName    // see counters
	// anyDevices says that pods take the best devices of this node, see WithAllocatable.
	anyDevices bool
	// longest is the length of the longest name of a resource.
	longest int
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
				device := deviceResourceOf(path)
				if _, several := found[device]; several {
					name = ""
				}
				found[device] = name
			}
		}
		for device, name := range found {
			if _, known := index[device]; !known {
				index[device] = name
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
func (inv *Inventory) Counts(name types.ResourceName) bool { return inv.devices.has(name) }

// Allocatable yields what is allocatable of each resource, by the names that the plugins left.
func (inv *Inventory) Allocatable() iter.Seq2[types.ResourceName, int64] {
	return maps.All(inv.info.Allocatable)
}

// Quantity returns what is allocatable of one resource, 0 for one that the node does not have.
func (inv *Inventory) Quantity(name types.ResourceName) int64 { return inv.info.Allocatable[name] }

// Names yields the names of the resources that the node lists, whether they are allocatable or not.
func (inv *Inventory) Names() iter.Seq[types.ResourceName] { return maps.Keys(inv.info.Capacity) }

// Lists reports whether the node lists a resource, allocatable or not.
func (inv *Inventory) Lists(name types.ResourceName) bool {
	_, listed := inv.info.Capacity[name]
	return listed
}

// Complete reports whether no plugin is missing from the node's inventory.
func (inv *Inventory) Complete() bool { return len(inv.missing) == 0 }

// missingPlugins are the specialists that did not answer when a node's state was computed, with
// their errors. The rest of the state is right: no other plugin uses what is missing.
type missingPlugins map[*handle]error

// add returns the missing plugins and one more.
func (m missingPlugins) add(plugin *handle, err error) missingPlugins {
	all := missingPlugins{}
	maps.Copy(all, m)
	all[plugin] = err
	return all
}
