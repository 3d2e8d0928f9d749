// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dispatch calls the device schedulers: the plugins in the order of their file names, then,
// if any of them uses it, the built-in group scheduler, which serves all resource/group requests.
//
// Plugins are contained. Each argument is a copy made for that call, and only what the method's
// documentation names is read from it afterwards. A panic, a call that does not return or a score
// that is not a number harms no other pod. What makes a plugin fail is kept from it for a time, and
// has no answer meanwhile, see ErrNoAnswer: a request, a node, or a pod that holds devices of a
// node. Only a plugin that fails for a plain request too is quarantined for all pods.
//
// # From a request to devices
//
// A [request.Request] is what one pod requests; its key identifies that. Each plugin in turn
// writes into its containers (a translation), until the group scheduler places what is left (rest).
// What plugins answer is cached as far as they declare what their answers depend on. No cache
// changes an answer: a test compares the set with one without caches.
package dispatch

import (
	"context"
	"slices"
	"sync/atomic"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/cache"
	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/pluginload"
	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// sizes are the entries of the caches: each cache has an answer for one request, on nodes in one
// state or built alike.
type sizes struct {
	fits, allocations, rests, placements, reasons int
}

// ordinary are the sizes of the caches. A cluster has few kinds of pods, and of nodes; its nodes
// have many states.
var ordinary = sizes{fits: 1 << 14, allocations: 1 << 10, rests: 1 << 10, placements: 1 << 16, reasons: 1 << 12}

// Set is the device schedulers of one process. It is safe for concurrent use.
type Set struct {
	plugins []*handle
	// groups says that a plugin leaves placement to the group scheduler.
	groups bool
	// allocators says that a plugin is an allocator.
	allocators bool
	// specialists says that all plugins are.
	specialists bool

	claimed map[types.ResourceName]bool
	counted map[device]types.ResourceName // the plain resource that counts whole devices
	words   devicescheduler.Words

	names          *cache.Cache[string, *deviceNames]
	rests          *cache.Cache[request.Key, *rest] // by the key of the translation
	groupScheduler groupScheduler
	searches       *searches

	retranslated atomic.Pointer[func()]
}

// Named is a plugin and the name of the file that it came from.
type Named struct {
	File   string
	Plugin devicescheduler.DeviceScheduler
}

// New returns the set of these plugins, in that order. A plugin that panics when it is asked for
// its name and abilities is logged and left out. recorder may be nil.
func New(logger klog.Logger, recorder Recorder, plugins ...Named) *Set {
	if recorder == nil {
		recorder = unrecorded{}
	}
	return newSet(logger, clock.RealClock{}, recorder, ordinary, plugins...)
}

func newSet(logger klog.Logger, clk clock.WithTicker, recorder Recorder, sizes sizes, plugins ...Named) *Set {
	s := &Set{
		specialists: true,

		claimed: map[types.ResourceName]bool{},
		counted: map[device]types.ResourceName{},
		words: devicescheduler.Words{
			Levels: map[string]devicescheduler.Noun{}, Units: map[string]devicescheduler.Unit{},
		},

		names:          cache.New[string, *deviceNames](maxDeviceNames),
		rests:          cache.New[request.Key, *rest](sizes.rests),
		groupScheduler: newGroupScheduler(clk, recorder, sizes),
		searches:       newSearches(clk, DefaultSearchBudgets),
	}
	for _, named := range plugins {
		plugin, err := newHandle(named, clk, recorder, sizes)
		if err != nil {
			logger.Error(err, "Device scheduler left out", logkey.File, named.File)
			continue
		}
		s.plugins = append(s.plugins, plugin)
		s.allocators = s.allocators || plugin.allocator != nil
		s.groups = s.groups || plugin.groups && plugin.allocator == nil
		s.specialists = s.specialists && plugin.kinds != nil
		for _, name := range plugin.claimed {
			s.claimed[name] = true
		}
		for _, counted := range plugin.counted {
			of := device{counted.Level, counted.Resource}
			if _, known := s.counted[of]; !known {
				s.counted[of] = counted.Plain
			}
		}
		addWords(&s.words, plugin.words)
		logger.Info("Device scheduler in use",
			logkey.Plugin, plugin.Name, logkey.File, named.File, logkey.GroupScheduler, plugin.groups)
	}
	return s
}

// Load returns the set of the built-in device schedulers and, after them, of the plugins in a
// directory, in the order of their file names. A file that cannot be loaded is reported in the log
// and left out, and so is one that other users may change, unless allowWritable is set. recorder
// may be nil.
func Load(ctx context.Context, recorder Recorder, dir string, allowWritable bool, builtIn ...Named) *Set {
	plugins := slices.Clone(builtIn)
	loaded, _ := pluginload.LoadDir(ctx, dir, pluginload.Schedulers().AllowWritable(allowWritable))
	for _, plugin := range loaded {
		plugins = append(plugins, Named{File: plugin.File, Plugin: plugin.Plugin})
	}
	return New(klog.FromContext(ctx), recorder, plugins...)
}

// OnRetranslation sets the function that is called when a node has changed how a plugin translates
// requests: pods that wait may then request something else. f must return at once.
func (s *Set) OnRetranslation(f func()) { s.retranslated.Store(&f) }

func (s *Set) announceRetranslation() {
	if f := s.retranslated.Load(); f != nil {
		(*f)()
	}
}

// CacheStats returns what the caches of the set have done so far, by their names.
func (s *Set) CacheStats() map[string]cache.Stats {
	stats := map[string]cache.Stats{
		"translated_requests": s.rests.Stats(),
		"placements":          s.groupScheduler.placements.Stats(),
		"reasons":             s.groupScheduler.reasons.Stats(),
	}
	var fits, allocations cache.Stats
	for _, plugin := range s.plugins {
		fits.Add(plugin.fits.Stats())
		allocations.Add(plugin.allocations.Stats())
	}
	stats["plugin_fits"], stats["plugin_allocations"] = fits, allocations
	return stats
}

// Claims reports whether a plugin serves the plain resource name without any node advertising it:
// on all nodes whose kubelet does not count it.
func (s *Set) Claims(name types.ResourceName) bool { return s.claimed[name] }

// Patient reports whether a plugin has pods wait for the best devices of all nodes.
func (s *Set) Patient() bool {
	return slices.ContainsFunc(s.plugins, func(plugin *handle) bool { return plugin.afterWait != nil })
}

// Words returns the words that the plugins have for their devices. Callers must not change them.
func (s *Set) Words() devicescheduler.Words { return s.words }

// addWords adds the words of one plugin to those of the plugins before it.
func addWords(known *devicescheduler.Words, more devicescheduler.Words) {
	for level, noun := range more.Levels {
		if _, ok := known.Levels[level]; !ok {
			known.Levels[level] = noun
		}
	}
	for resource, unit := range more.Units {
		if _, ok := known.Units[resource]; !ok {
			known.Units[resource] = unit
		}
	}
}
