// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"errors"
	"maps"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/scheduler/pluginhost"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// kinds are the device resources that a specialist serves. A nil one stands for all.
type kinds struct {
	plain  map[types.ResourceName]bool
	levels map[string]bool
}

func newKinds(of devicescheduler.Kinds) *kinds {
	k := &kinds{plain: map[types.ResourceName]bool{}, levels: map[string]bool{}}
	for _, name := range of.Plain {
		k.plain[name] = true
	}
	for _, level := range of.Levels {
		k.levels[level] = true
	}
	return k
}

// has reports whether a resource is of these kinds.
func (k *kinds) has(name types.ResourceName) bool {
	if k.plain[name] {
		return true
	}
	rest := strings.TrimPrefix(string(name), types.DeviceGroupPrefix+"/")
	for isLevel := true; ; isLevel = !isLevel {
		segment, after, more := strings.Cut(rest, "/")
		if !more { // the resource
			return false
		}
		if isLevel && k.levels[segment] {
			return true
		}
		rest = after
	}
}

// concern reports whether a pod requests or holds anything of these kinds.
func (k *kinds) concern(pod *types.PodInfo) bool {
	if k == nil || hasAny(k, pod.Requests) {
		return true
	}
	for _, info := range pod.Containers() {
		if hasAny(k, info.Requests) || hasAny(k, info.KubeRequests) || hasAny(k, info.DevRequests) ||
			hasAny(k, info.AllocateFrom) {
			return true
		}
		for _, from := range info.AllocateFrom {
			if k.has(from) {
				return true
			}
		}
	}
	return false
}

// concern reports whether the plugin may have to do with a pod on the node with this inventory. Of
// what the pod counts, only what is a device there is left.
func (h *handle) concern(inventory *Inventory, at *translation) bool {
	if at.concerns(h.kinds) {
		return true
	}
	if h.allocator == nil {
		return false
	}
	for _, info := range at.Pod.Containers() {
		for name := range info.KubeRequests {
			if inventory.allocated[name] {
				return true
			}
		}
	}
	return false
}

func hasAny[V any](k *kinds, list map[types.ResourceName]V) bool {
	for name := range list {
		if k.has(name) {
			return true
		}
	}
	return false
}

// missingPlugins are the specialists that did not answer when a node's state was computed, with
// their errors. The rest of the state is right: no other plugin uses what is missing.
type missingPlugins map[*handle]error

// tolerates reports whether the state of a node can be used without the plugin that returned the
// error.
func (s *Set) tolerates(err error) bool {
	return s.specialists && errors.Is(err, pluginhost.ErrNoAnswer)
}

// with returns the missing plugins and one more.
func (m missingPlugins) with(plugin *handle, err error) missingPlugins {
	all := missingPlugins{}
	maps.Copy(all, m)
	all[plugin] = err
	return all
}

// Complete reports whether no plugin is missing from the node's inventory.
func (inv *Inventory) Complete() bool { return len(inv.missing) == 0 }

// missingFor returns the error of a plugin that serves the pod and is missing from the node's
// state, or nil. Of several errors it is that of the first plugin by name, so that all nodes have
// the same reason.
func (n *Node) missingFor(at *translation) error {
	var first *handle
	for plugin := range n.missing {
		if plugin.concern(n.inventory, at) && (first == nil || plugin.Name < first.Name) {
			first = plugin
		}
	}
	return n.missing[first]
}

// Complete reports whether no plugin is missing from the node's state. One that is not complete
// must not be cached.
func (n *Node) Complete() bool { return len(n.missing) == 0 }
