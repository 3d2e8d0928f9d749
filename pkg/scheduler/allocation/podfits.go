// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"fmt"
	"maps"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/scheduler/pluginhost"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// podFits returns the call of PodFitsDevice for a pod on a node, for an allocator with a limit of
// steps.
func (h *handle) podFits(node *Node, t *translation, pod string, steps int) func() (*fitAnswer, error) {
	nodeInfo, passed := h.infoFor(node), h.podFor(node, t, pod, "")
	return func() (*fitAnswer, error) {
		scheduler := h.schedulerOf(node, t, steps)
		fits, reasons, score := scheduler.PodFitsDevice(nodeInfo, passed, h.allocator != nil)
		answer := &fitAnswer{fits: fits}
		if allocation, ok := scheduler.(Allocation); ok {
			answer.steps, answer.limitHit = allocation.Spent()
		}
		if fits {
			answer.next, answer.score = t.adopt(passed, h.allocator != nil), score
		} else {
			answer.reasons, answer.unresolvable = h.texts(reasons), slices.ContainsFunc(reasons, isUnresolvable)
		}
		return answer, nil
	}
}

// schedulerOf returns what answers for the plugin on a node: an allocator is queried for pods that
// request this, within a limit of steps.
func (h *handle) schedulerOf(node *Node, t *translation, steps int) devicescheduler.DeviceScheduler {
	if h.allocator != nil {
		return h.allocator.ForPod(h.podDevices(t), node.inventory.read[h], steps)
	}
	return h.translatorOf(t)
}

// translatorOf returns what answers for a plugin that is no allocator: one that is patient has
// another scheduler for pods that have waited, and one that can do without the best devices of all
// nodes has another one in a cluster that prefers them.
func (h *handle) translatorOf(t *translation) devicescheduler.DeviceScheduler {
	switch {
	case t.Waited && h.afterWait != nil:
		return h.afterWait
	case h.preferring != nil:
		return h.preferring
	}
	return h.DeviceScheduler
}

// podDevices returns what an allocator has read of the request. It is part of the calls of the
// allocator, the first of which has it read.
func (h *handle) podDevices(t *translation) PodDevices {
	if known, ok := t.read.Load(h); ok {
		return known
	}
	read := h.allocator.ReadPod(t.Pod, t.Containers)
	t.read.Store(h, read)
	return read
}

// infoFor returns what the plugin is given of a node: a copy, but for an allocator, which changes
// nothing.
func (h *handle) infoFor(node *Node) *types.NodeInfo {
	if h.allocator != nil {
		return node.info
	}
	return node.info.Clone()
}

// podFor returns the copy of a pod that the plugin gets, with a name, and for a node, if that is
// known. A count that an allocator has served is not in it.
func (h *handle) podFor(node *Node, t *translation, pod, nodeName string) *types.PodInfo {
	passed := t.named(pod, nodeName)
	if h.allocator == nil && t.alone {
		for _, info := range passed.Containers() {
			maps.DeleteFunc(info.Requests, func(name types.ResourceName, _ int64) bool {
				return request.IsCount(name) && node.inventory.allocated[name]
			})
		}
	}
	return passed
}

// maxReasons is how many reasons of a plugin become part of an event, which Kubernetes limits to
// 1024 bytes.
const maxReasons = 4

func isUnresolvable(reason devicescheduler.PredicateFailureReason) bool {
	unresolvable, ok := reason.(Unresolvable)
	return ok && unresolvable.Unresolvable()
}

func (h *handle) texts(reasons []devicescheduler.PredicateFailureReason) []string {
	var texts []string
	for _, reason := range reasons[:min(len(reasons), maxReasons)] {
		texts = append(texts, pluginhost.Clip(reason.GetReason()))
	}
	if len(texts) == 0 {
		texts = []string{fmt.Sprintf("device scheduler %q gives no reason", h.Name)}
	}
	return slices.Clip(texts) // cached, and given to callers who may append
}
