// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"maps"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Plugins are the device plugins of the node. *plugins.Latest implements it.
type Plugins interface {
	// ExtendedResources returns the names of the extended resources that the plugins publish now,
	// each once, and whether every plugin has reported them without an error. It does not block.
	ExtendedResources() (names []types.ResourceName, complete bool)
}

// noPlugins have not reported.
type noPlugins struct{}

// ExtendedResources implements Plugins.
func (noPlugins) ExtendedResources() (names []types.ResourceName, complete bool) { return nil, false }

// Follow makes plugins the source of the device resources. Call it before the other methods.
func (r *Registry) Follow(plugins Plugins) { r.plugins = plugins }

// DeviceResources returns the names of the node's device resources: a pod that requests one is a
// device pod. all says that there can be no others. The caller must not change the map.
//
// The registry owns these names: the names that the device plugins report now. Unless every plugin
// reports, it also has the names that they reported before, even before a restart, and the names in
// the node's object: a stopped plugin must not make the pods that request its devices look like
// pods without requests. There may be other names until every plugin has reported or the registry
// has seen the node's object.
func (r *Registry) DeviceResources() (names map[types.ResourceName]bool, all bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	reported, complete := r.plugins.ExtendedResources()
	if complete {
		r.setResources(nil, reported, true)
	} else {
		r.setResources(r.resources, reported, r.allKnown)
	}
	return r.resources, r.allKnown
}

// NotePublished adds the names in the node's object, which may be old. They count while some plugin
// does not report.
func (r *Registry) NotePublished(names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, complete := r.plugins.ExtendedResources(); complete {
		return
	}
	published := make([]types.ResourceName, len(names))
	for i, name := range names {
		published[i] = types.ResourceName(name)
	}
	r.setResources(r.resources, published, true)
}

// setResources sets the resources to previous, which are none or those that are set, and names.
// Each creation of a container reads them several times, so it allocates nothing without a
// change. The caller holds mu.
func (r *Registry) setResources(previous map[types.ResourceName]bool, names []types.ResourceName, all bool) {
	isNew := func(name types.ResourceName) bool { return !r.resources[name] }
	same := len(r.resources) == max(len(previous), len(names)) && !slices.ContainsFunc(names, isNew)
	if same && all == r.allKnown {
		return
	}
	next := map[types.ResourceName]bool{}
	maps.Copy(next, previous)
	for _, name := range names {
		next[name] = true
	}
	r.resources, r.allKnown = next, all
	r.notify()
}
