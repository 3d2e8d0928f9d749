// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"sync/atomic"

	"github.com/kubedevice/kubedevice/pkg/cache"
	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
)

// cachedAnswers are those of a plugin that declares what its answers depend on.
type cachedAnswers struct {
	pure       bool
	translator devicescheduler.Translator // nil for a plugin that does more than translate
	revision   atomic.Uint64              // of the translator, as of the last call that reported a node to it

	fits *cache.Cache[answerKey, *fitAnswer]
	// allocations is only used for a translator: what others allocate changes the node, which is
	// hardly ever the same again.
	allocations *cache.Cache[answerKey, *translation]
	// refinements are by the state of the node, as placements are.
	refinements *cache.Cache[answerKey, *refinement]
}

// answerKey is all that an answer to PodFitsDevice, PodAllocate or Refine depends on.
type answerKey struct {
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
	a.fits = cache.New[answerKey, *fitAnswer](sizes.fits)
	a.allocations = cache.New[answerKey, *translation](sizes.allocations)
	a.refinements = cache.New[answerKey, *refinement](sizes.fits)
}

// predictable reports whether an answer changes only with the question.
func (a *cachedAnswers) predictable() bool { return a.pure || a.translator != nil }

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

// fitAnswer is one plugin's answer to PodFitsDevice.
type fitAnswer struct {
	fits         bool
	next         *translation // for one that fits
	reasons      []string
	unresolvable bool // it would not fit if the node were empty either
	score        float64
	steps        int  // of an allocator
	limitHit     bool // by the limit of steps of this call
}
