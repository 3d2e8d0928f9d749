// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dispatch calls the device schedulers: the plugins in the order of their file names, then, if any of them uses
// it, the built-in group scheduler, which serves all resource/group requests.
//
// Plugins are contained. Whatever they are given is a copy made for that call, of which the host takes back only what
// the method's documentation names. A panic, a call that does not return or a score that is no number harms nobody. What
// makes a plugin fail is kept from it for a time, and has no answer meanwhile, see ErrNoAnswer: a request, a node, or a
// pod that holds devices of a node. Only a plugin that fails for a plain request too is quarantined, for all.
package dispatch

import (
	"sync"
	"sync/atomic"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

const (
	// memoEntries bounds the placements that are remembered, each for one request on nodes in one state.
	memoEntries = 1 << 16

	// recallEntries bounds the answers that are remembered of a plugin, each for one request on nodes in one state, or
	// built alike.
	recallEntries = 1 << 14

	// recallAllocations bounds the same for PodAllocate, of plugins that only translate: a cluster has few kinds of pods, and
	// of nodes.
	recallAllocations = 1 << 10
)

// Set is the device schedulers of one process. It is safe for concurrent use.
type Set struct {
	plugins []*contained
	// groups says that a plugin leaves placement to the group scheduler.
	groups bool
	// chooser is the one for hosted devices, nil where there is none.
	chooser *contained
	// specialists says that all plugins are.
	specialists bool

	claimed map[types.ResourceName]bool
	words   devicescheduler.Words

	placers sync.Pool // of *grouptree.Placer
	memo    *grouptree.Memo
	limits  limitLog

	recorder     Recorder
	retranslated atomic.Pointer[func()]
}

// Named is a plugin and the name of the file that it came from.
type Named struct {
	File   string
	Plugin devicescheduler.DeviceScheduler
}

// New returns the set of these plugins, in that order. A plugin that panics when asked what it is, is reported in the
// log and left out. recorder may be nil.
func New(logger klog.Logger, recorder Recorder, plugins ...Named) *Set {
	if recorder == nil {
		recorder = unrecorded{}
	}
	return newSet(logger, clock.RealClock{}, recorder, plugins...)
}

func newSet(logger klog.Logger, clk clock.WithTicker, recorder Recorder, plugins ...Named) *Set {
	s := &Set{
		specialists: true,

		claimed:  map[types.ResourceName]bool{},
		words:    devicescheduler.Words{Levels: map[string]devicescheduler.Noun{}, Units: map[string]devicescheduler.Unit{}},
		placers:  sync.Pool{New: func() any { return grouptree.NewPlacer(0) }},
		memo:     grouptree.NewMemo(memoEntries),
		limits:   limitLog{clock: clk},
		recorder: recorder,
	}
	for _, named := range plugins {
		plugin, err := contain(named, clk, recorder)
		if err != nil {
			logger.Error(err, "Device scheduler left out", "file", named.File)
			continue
		}
		s.plugins = append(s.plugins, plugin)
		recorder.Quarantined(plugin.name, false)
		recorder.Overdue(plugin.name, 0)
		if plugin.chooser != nil {
			s.chooser = plugin
		} else {
			s.groups = s.groups || plugin.groups
		}
		s.specialists = s.specialists && plugin.kinds != nil
		for _, name := range plugin.claimed {
			s.claimed[name] = true
		}
		learn(&s.words, plugin.words)
		logger.Info("Device scheduler in use", "deviceScheduler", plugin.name, "file", named.File, "groupScheduler", plugin.groups)
	}
	return s
}

// OnRetranslation has f called when a node has changed how a plugin translates requests: pods that wait may ask for
// something else now. f returns at once. There is one; the last call counts.
func (s *Set) OnRetranslation(f func()) { s.retranslated.Store(&f) }

func (s *Set) announceRetranslation() {
	if f := s.retranslated.Load(); f != nil {
		(*f)()
	}
}

// Predictable reports whether the answer for a pod on a node changes only with that node's devices and what is used of
// them, or with a retranslation.
func (s *Set) Predictable() bool {
	for _, plugin := range s.plugins {
		if plugin.recall == nil {
			return false
		}
	}
	return true
}

// Claims reports whether a plugin serves the plain resource name without any node advertising it.
func (s *Set) Claims(name types.ResourceName) bool { return s.claimed[name] }
