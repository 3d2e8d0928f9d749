// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"sync/atomic"

	"github.com/kubedevice/kubedevice/pkg/cache"
	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/scheduler/pluginhost"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
)

// cachedAnswers are those of a plugin that declares what its answers depend on.
type cachedAnswers struct {
	pure       bool
	translator devicescheduler.Translator // nil for a plugin that does more than translate
	revision   atomic.Uint64              // of the translator, as of the last call that reported a node to it

	fits *cache.Cache[question, *fitAnswer]
	// allocations is only used for a translator: what others allocate changes the node, which is
	// hardly ever the same again.
	allocations *cache.Cache[question, *translation]
}

// question is all that an answer to PodFitsDevice or PodAllocate depends on.
type question struct {
	revision uint64 // of the translator; 0 for a plugin that is pure
	request  request.Key
	node     nodeKey
}

// init asks the plugin what its answers depend on. groups says that it leaves placement to the
// group scheduler.
func (a *cachedAnswers) init(plugin devicescheduler.DeviceScheduler, groups bool, sizes sizes) {
	if translator, ok := plugin.(devicescheduler.Translator); ok && groups {
		a.translator = translator
		a.revision.Store(translator.Revision())
	}
	pure, ok := plugin.(devicescheduler.Pure)
	a.pure = ok && pure.Pure()
	a.fits = cache.New[question, *fitAnswer](sizes.fits)
	a.allocations = cache.New[question, *translation](sizes.allocations)
}

// predictable reports whether an answer changes only with the question.
func (a *cachedAnswers) predictable() bool { return a.pure || a.translator != nil }

// question returns the question to a plugin that is predictable.
func (a *cachedAnswers) question(node *Node, at *translation) question {
	if a.pure {
		return question{request: at.Key(), node: node.content()}
	}
	return question{a.revision.Load(), at.Key(), nodeKey(node.inventory.tree.Shape())}
}

// cachedFit answers from the cache, or calls the plugin. One that is kept from the request is
// called in any case: it would not allocate what it is known to fit, and only an answer ends a
// quarantine.
//
// An allocator is called within a budget. The answer is nil when that has nothing left for it.
func (h *handle) cachedFit(
	ctx context.Context, node *Node, request *request.Request, at *translation, within rationed,
) (*fitAnswer, error) {
	if !h.predictable() || !h.State().Calls() || h.keptFrom(node, request) {
		return h.fit(ctx, node, request, at, within)
	}
	q := h.question(node, at)
	if known, ok := h.fits.Get(q); ok {
		return known, nil
	}
	answer, err := h.fit(ctx, node, request, at, within)
	if err == nil && answer != nil {
		h.fits.Add(q, answer)
	}
	return answer, err
}

// keptFrom reports whether the plugin is kept from a request on a node, and not called for it.
func (h *handle) keptFrom(node *Node, request *request.Request) bool {
	return h.State() != pluginhost.Serving && h.KeptFrom(h.subject(node, request))
}

// cachedAllocate is cachedFit for PodAllocate.
func (h *handle) cachedAllocate(
	ctx context.Context, node *Node, request *request.Request, at *translation,
) (*translation, error) {
	if h.translator == nil || h.pure || !h.State().Calls() {
		return h.allocate(ctx, node, request, at)
	}
	q := h.question(node, at)
	if known, ok := h.allocations.Get(q); ok {
		return known, nil
	}
	next, err := h.allocate(ctx, node, request, at)
	if err == nil {
		h.allocations.Add(q, next)
	}
	return next, err
}

// updateRevision notes how the plugin translates from now on, and calls changed if that is new. It
// is part of each call that reports a node to the plugin.
func (a *cachedAnswers) updateRevision(changed func()) {
	if a.translator == nil {
		return
	}
	for now := a.translator.Revision(); ; {
		before := a.revision.Load()
		if now <= before { // a later call was faster
			return
		}
		if a.revision.CompareAndSwap(before, now) {
			changed()
			return
		}
	}
}

// Era reports whether verdicts may be cached, and until when: of two verdicts for requests of equal
// key on one Node, in the same era, the second equals the first. There is no era while a plugin is
// quarantined, since its answers may change at any time, nor where the set is not Predictable.
func (s *Set) Era() (era uint64, ok bool) {
	for _, plugin := range s.plugins {
		if !plugin.predictable() || !plugin.State().Calls() {
			return 0, false
		}
		era += plugin.revision.Load() // revisions only grow, so an equal sum means equal revisions
	}
	return era, true
}

// Predictable reports whether the answer for a pod on a node changes only with that node's devices
// and what is used of them, or with a retranslation.
func (s *Set) Predictable() bool {
	for _, plugin := range s.plugins {
		if !plugin.predictable() {
			return false
		}
	}
	return true
}
