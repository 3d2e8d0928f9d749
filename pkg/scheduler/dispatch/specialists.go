// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"errors"
	"maps"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// kinds are what a specialist has to do with. A nil one has to do with everything.
type kinds struct {
	plain  map[types.ResourceName]bool
	levels map[string]bool
	serves func(types.ResourceName) bool // of plain names that come and go; nil for none
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

// has reports whether a name is of these kinds.
func (k *kinds) has(name types.ResourceName) bool {
	if k.plain[name] || k.serves != nil && k.serves(name) {
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

// concern reports whether a pod asks for anything of these kinds, or holds it.
func (k *kinds) concern(pod *types.PodInfo) bool {
	if k == nil || hasAny(k, pod.Requests) {
		return true
	}
	for _, containers := range []map[string]types.ContainerInfo{pod.RunningContainers, pod.InitContainers} {
		for _, info := range containers {
			if hasAny(k, info.Requests) || hasAny(k, info.KubeRequests) || hasAny(k, info.DevRequests) || hasAny(k, info.AllocateFrom) {
				return true
			}
			for _, from := range info.AllocateFrom {
				if k.has(from) {
					return true
				}
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

// gaps are the specialists that gave no answer when a node was put together, with their errors. The rest of the node is
// as it should be: nobody else has to do with what is missing.
type gaps map[*contained]error

// tolerates reports whether an error leaves a gap only, and not nothing at all.
func (s *Set) tolerates(err error) bool { return s.specialists && errors.Is(err, ErrNoAnswer) }

// with returns gaps and one more.
func (g gaps) with(plugin *contained, err error) gaps {
	all := gaps{}
	maps.Copy(all, g)
	all[plugin] = err
	return all
}

// Whole reports whether every plugin has had its say in the node's inventory.
func (inv *Inventory) Whole() bool { return len(inv.gaps) == 0 }

// gap returns the error of a plugin that has to do with the pod and is missing from the node's state, or nil. Of several it
// is that of the first by name, so that all nodes say the same.
func (n *Node) gap(pod *types.PodInfo) error {
	var first *contained
	for plugin := range n.gaps {
		if plugin.kinds.concern(pod) && (first == nil || plugin.name < first.name) {
			first = plugin
		}
	}
	return n.gaps[first]
}

// Whole reports whether every plugin has had its say in the node's state. One that is not whole is not to be remembered.
func (n *Node) Whole() bool { return len(n.gaps) == 0 }
