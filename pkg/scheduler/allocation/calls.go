// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"context"

	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/scheduler/pluginhost"
)

// cachedFit answers from the cache, or calls the plugin. One that is kept from the request is
// called in any case: it would not allocate what it is known to fit, and only an answer ends a
// quarantine.
//
// An allocator is called within a budget. The answer is nil when that has nothing left for it.
func (h *handle) cachedFit(
	ctx context.Context, node *Node, request *request.Request, t *translation, within rationed,
) (*fitAnswer, error) {
	if !h.predictable() || !h.State().Calls() || h.keptFrom(node, request) {
		return h.fit(ctx, node, request, t, within)
	}
	q := h.key(node, t)
	if known, ok := h.fits.Get(q); ok {
		return known, nil
	}
	answer, err := h.fit(ctx, node, request, t, within)
	if err == nil && answer != nil {
		h.fits.Add(q, answer)
	}
	return answer, err
}

func (h *handle) fit(
	ctx context.Context, node *Node, request *request.Request, t *translation, within rationed,
) (*fitAnswer, error) {
	call := &pluginhost.Call{Method: "PodFitsDevice", Subject: h.subject(node, request)}
	if h.allocator == nil {
		return pluginhost.Do(ctx, h.Plugin, call, h.podFits(node, t, request.Pod.Name, 0))
	}
	limits, admitted := within.admit(node)
	if !admitted && sizeSteps(t.size()) >= limits.Steps {
		return nil, nil
	}
	began := h.Clock.Now()
	answer, err := pluginhost.Do(ctx, h.Plugin, call, h.podFits(node, t, request.Pod.Name, limits.Steps))
	if err != nil {
		return nil, err
	}
	size := t.size()
	if answer.fits {
		size += answer.next.made()
	}
	within.charge(answer.steps+sizeSteps(size), h.Clock.Since(began), admitted)
	if answer.limitHit && !admitted {
		return nil, nil
	}
	return answer, nil
}

// cachedAllocate is cachedFit for PodAllocate.
func (h *handle) cachedAllocate(
	ctx context.Context, node *Node, request *request.Request, t *translation,
) (*translation, error) {
	if h.translator == nil || h.pure || !h.State().Calls() {
		return h.allocate(ctx, node, request, t)
	}
	q := h.key(node, t)
	if known, ok := h.allocations.Get(q); ok {
		return known, nil
	}
	next, err := h.allocate(ctx, node, request, t)
	if err == nil {
		h.allocations.Add(q, next)
	}
	return next, err
}

func (h *handle) allocate(
	ctx context.Context, node *Node, request *request.Request, t *translation,
) (*translation, error) {
	nodeInfo, passed := h.infoFor(node), h.podFor(node, t, request.Pod.Name, node.info.Name)
	call := &pluginhost.Call{Method: "PodAllocate", Subject: h.subject(node, request)}
	return pluginhost.Do(ctx, h.Plugin, call, func() (*translation, error) {
		if err := h.schedulerOf(node, t, 0).PodAllocate(nodeInfo, passed); err != nil {
			return nil, err
		}
		return t.adopt(passed, h.allocator != nil), nil
	})
}

// key returns the question to a plugin that is predictable.
func (a *cachedAnswers) key(node *Node, t *translation) answerKey {
	if a.pure {
		return answerKey{request: t.Key(), node: node.content()}
	}
	return answerKey{a.revision.Load(), t.Key(), nodeKey(node.inventory.tree.Shape())}
}

// scores reports whether a plugin's score counts.
func (h *handle) scores(score float64) bool { return !h.groups || h.allocator != nil && score > 0 }

const (
	// stepsPerName is what a container, a name or an allocated device costs besides the search,
	// since each node has a translation of its own: it is copied and compiled.
	stepsPerName = 450
	// smallestSize costs nothing: that of a container that counts two devices. One that counts six
	// takes little less than freeSteps.
	smallestSize = 4
)

// sizeSteps returns what a request of a size costs an allocator besides the search.
func sizeSteps(size int) int { return stepsPerName * max(0, size-smallestSize) }
