// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

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
	if s.dropped(request, node.inventory) != "" {
		return false
	}
	t := s.partOf(request, node.inventory)
	if t.Empty() { // what it counts is no device here
		return true
	}
	for _, plugin := range s.plugins {
		if !plugin.mayConcern(node.inventory, t) {
			continue
		}
		answer := plugin.knownFit(node, t)
		if answer == nil {
			return plugin.allocator == nil || mayAllocate(node, t)
		}
		if !answer.fits {
			return false
		}
		t = answer.next
	}
	left, known := s.knownRemainder(t)
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
func (h *handle) knownFit(node *Node, t *translation) *fitAnswer {
	if !h.predictable() || !h.State().Calls() {
		return nil
	}
	answer, _ := h.fits.Get(h.key(node, t))
	return answer
}

// mayAllocate reports whether as many devices of the allocators may be free as the pod counts.
func mayAllocate(node *Node, t *translation) bool {
	free, running := node.freeCounts(), types.ResourceList{}
	for _, c := range t.Containers {
		needed := running
		if c.Kind == grouptree.Init {
			needed = types.ResourceList{}
		}
		info := t.Container(c.Name)
		for name, left := range free {
			if needed[name] += info.KubeRequests[name]; left < needed[name] {
				return false
			}
		}
	}
	return true
}
