// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"context"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/scheduler/pluginhost"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
)

// placed is a request that all plugins have translated, where the group scheduler places it, and
// how good the devices are by the plugins' own preference.
type placed struct {
	*translation
	request   *grouptree.Request
	placement *grouptree.Placement
	quality   float64
}

// refine returns where the devices are placed that plugins prefer, among those that are free, of a
// pod that fits the node; and what it was passed if they prefer none, or if these have no place.
// The search has a budget of its own: it takes nothing from the searches that decide whether a pod
// fits.
func (s *Set) refine(
	ctx context.Context, node *Node, request *request.Request, fitting placed, within rationed,
) (placed, error) {
	refined, n := fitting, 0
	for _, plugin := range s.plugins {
		refiner := plugin.refiner(fitting.translation)
		if refiner == nil || !plugin.State().Calls() || !plugin.mayConcern(node.inventory, refined.translation) {
			continue
		}
		answer, err := plugin.cachedRefine(ctx, node, request, refined.translation, refiner)
		if err != nil {
			return placed{}, err
		}
		if answer.prefers {
			refined.translation = answer.next
			refined.quality += unit(answer.quality)
			n++
		}
	}
	if n == 0 || refined.Key() == fitting.Key() {
		return fitting, nil
	}
	refined.quality /= float64(n)
	left := s.remainder(refined.translation)
	if left.err != nil || left.unserved != "" || left.request == nil {
		return fitting, nil
	}
	refined.request = left.request
	refined.placement = s.groupScheduler.place(ctx, node, left.request, within.forRefinement())
	if refined.placement == nil || !refined.placement.Fits ||
		refined.placement.Exceeds && !fitting.placement.Exceeds { // no better devices at the price of more of them
		return fitting, nil
	}
	return refined, nil
}

// refiner returns what narrows requests of such pods for the plugin, or nil.
func (h *handle) refiner(t *translation) devicescheduler.Refiner {
	if h.allocator != nil {
		return nil
	}
	refiner, _ := h.translatorOf(t).(devicescheduler.Refiner)
	return refiner
}

// refinement is a plugin's answer to Refine.
type refinement struct {
	next    *translation
	quality float64
	prefers bool
}

// cachedRefine answers from the cache, or calls the plugin. What an allocator has translated is
// like nothing else, and is not cached.
func (h *handle) cachedRefine(
	ctx context.Context, node *Node, request *request.Request, t *translation, refiner devicescheduler.Refiner,
) (*refinement, error) {
	q := answerKey{request: t.Key(), node: node.state()}
	if !t.alone {
		if known, ok := h.refinements.Get(q); ok {
			return known, nil
		}
	}
	nodeInfo, passed := h.infoFor(node), h.podFor(node, t, request.Pod.Name, node.info.Name)
	call := &pluginhost.Call{Method: "Refine", Subject: h.subject(node, request)}
	answer, err := pluginhost.Do(ctx, h.Plugin, call, func() (*refinement, error) {
		quality, prefers := refiner.Refine(nodeInfo, passed)
		if !prefers {
			return &refinement{}, nil
		}
		return &refinement{next: t.adopt(passed, false), quality: quality, prefers: true}, nil
	})
	if err == nil && !t.alone {
		h.refinements.Add(q, answer)
	}
	return answer, err
}
