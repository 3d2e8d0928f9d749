// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// MayFit reports whether the pod may fit the node. It calls no plugin and makes no search, so it
// takes microseconds: it uses answers that are cached, and necessary conditions. It errs toward
// true: when it returns false, Fit would find that the pod does not fit.
//
// The plugins' answers for pods that wait are mostly there: they were given when the pods were
// tried before, and those of a Translator are the same for all nodes built alike.
func (s *Set) MayFit(node *Node, request *request.Request) bool {
	at := partOf(request, node.inventory)
	if at.Empty() { // what it counts is no device here
		return true
	}
	for _, plugin := range s.plugins {
		if !plugin.concern(node.inventory, at) {
			continue
		}
		answer := plugin.knownFit(node, at)
		if answer == nil {
			return plugin.allocator == nil || mayAllocate(node, at)
		}
		if !answer.fits {
			return false
		}
		at = answer.next
	}
	left, known := s.knownRest(at)
	switch {
	case !known || !node.Complete() || left.err != nil:
		return true
	case left.unserved != "": // until a plugin translates it otherwise
		return false
	case left.request == nil:
		return true
	}
	if placement, ok := s.groupScheduler.known(node, left.request); ok {
		return placement.Fits
	}
	return node.summary().MayFit(left.request)
}

// knownFit returns the plugin's answer if it is cached, or nil.
func (h *handle) knownFit(node *Node, at *translation) *fitAnswer {
	if !h.predictable() || !h.State().Calls() {
		return nil
	}
	answer, _ := h.fits.Get(h.question(node, at))
	return answer
}

// mayAllocate reports whether as many devices of the allocators may be free as the pod counts.
func mayAllocate(node *Node, pod *translation) bool {
	free, running := node.freeCounts(), types.ResourceList{}
	for _, at := range pod.Containers {
		needed := running
		if at.Kind == grouptree.Init {
			needed = types.ResourceList{}
		}
		info := pod.Container(at.Name)
		for name, left := range free {
			if needed[name] += info.KubeRequests[name]; left < needed[name] {
				return false
			}
		}
	}
	return true
}

// freeCounts returns how many devices of allocators are free, by the plain resources that count
// them.
func (n *Node) freeCounts() types.ResourceList {
	n.counting.Do(func() {
		n.counts = types.ResourceList{}
		for i, counted := range n.inventory.counted {
			if counted == "" {
				continue
			}
			n.counts[counted] += 0
			if n.used[i] < n.inventory.tree.Allocatable(i) {
				n.counts[counted]++
			}
		}
	})
	return n.counts
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

// Counts reports whether an extended resource is a device on the node, see Inventory.
func (n *Node) Counts(name types.ResourceName) bool { return n.inventory.Counts(name) }
