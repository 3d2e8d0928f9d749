// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dispatch calls the device schedulers: the plugins in the order of their file names, then, if any of them uses
// it, the built-in group scheduler, which serves all resource/group requests.
//
// Plugins are contained: see contained. Whatever they are given is a copy made for that call.
package dispatch

import (
	"context"
	"maps"
	"sync"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// memoEntries bounds the placements that are remembered, each for one request on nodes in one state.
const memoEntries = 1 << 16

// Set is the device schedulers of one process. It is safe for concurrent use.
type Set struct {
	plugins []*contained
	// groups says that a plugin leaves placement to the group scheduler.
	groups  bool
	claimed map[types.ResourceName]bool

	placers sync.Pool // of *grouptree.Placer
	memo    *grouptree.Memo
}

// Named is a plugin and the name of the file that it came from.
type Named struct {
	File   string
	Plugin devicescheduler.DeviceScheduler
}

// New returns the set of these plugins, in that order. A plugin that panics when asked what it is, is reported in the
// log and left out.
func New(logger klog.Logger, plugins ...Named) *Set {
	s := &Set{
		claimed: map[types.ResourceName]bool{},
		placers: sync.Pool{New: func() any { return grouptree.NewPlacer(0) }},
		memo:    grouptree.NewMemo(memoEntries),
	}
	for _, named := range plugins {
		plugin, err := contain(named, clock.RealClock{})
		if err != nil {
			logger.Error(err, "Device scheduler left out", "file", named.File)
			continue
		}
		s.plugins = append(s.plugins, plugin)
		s.groups = s.groups || plugin.groups
		for _, name := range plugin.claimed {
			s.claimed[name] = true
		}
		logger.Info("Device scheduler in use", "deviceScheduler", plugin.name, "file", named.File, "groupScheduler", plugin.groups)
	}
	return s
}

// Claims reports whether a plugin serves the plain resource name without any node advertising it.
func (s *Set) Claims(name types.ResourceName) bool { return s.claimed[name] }

// Inventory is a node's devices as the plugins left them. It is immutable and safe for concurrent use.
type Inventory struct {
	info   *types.NodeInfo
	groups *grouptree.Inventory
}

// Serves reports whether the node lists the plain resource name.
func (inv *Inventory) Serves(name types.ResourceName) bool {
	_, ok := inv.info.Capacity[name]
	return ok
}

// PlainNames returns the plain resource names that the node lists.
func (inv *Inventory) PlainNames() []types.ResourceName {
	var names []types.ResourceName
	for name := range inv.info.Capacity {
		if !resource.IsGroupResourceName(name) {
			names = append(names, name)
		}
	}
	return names
}

// AddNode tells every plugin of the node. info is taken over.
func (s *Set) AddNode(ctx context.Context, info *types.NodeInfo) (*Inventory, error) {
	for _, plugin := range s.plugins {
		given := info.Clone()
		left, err := call(ctx, plugin, "AddNode", func() (types.ResourceList, error) {
			plugin.AddNode(given.Name, given)
			return maps.Clone(given.Allocatable), nil
		})
		if err != nil {
			return nil, err
		}
		info.Allocatable = left
	}
	groups, err := grouptree.CompileInventory(info.Allocatable, info.Scorer)
	if err != nil {
		return nil, err
	}
	return &Inventory{info: info, groups: groups}, nil
}

// RemoveNode tells every plugin that the node is gone. A plugin that cannot take it is logged.
func (s *Set) RemoveNode(ctx context.Context, name string) {
	for _, plugin := range s.plugins {
		_, err := call(ctx, plugin, "RemoveNode", func() (struct{}, error) {
			plugin.RemoveNode(name)
			return struct{}{}, nil
		})
		if err != nil {
			klog.FromContext(ctx).Error(err, "Device scheduler was not told that a node is gone", "node", klog.KRef("", name))
		}
	}
}
