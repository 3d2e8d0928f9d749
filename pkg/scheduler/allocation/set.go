// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync/atomic"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/cache"
	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/pluginload"
	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/scheduler/pluginhost"
	"github.com/kubedevice/kubedevice/pkg/sdk/devicescheduler"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

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
	parts   countedParts
	// translated are the resources that plugins make of others, which no device has.
	translated   map[device]device
	displayNames devicescheduler.Words

	remainders     *cache.Cache[request.Key, *remainder] // by the key of the translation
	groupScheduler groupScheduler
	searches       *searches

	retranslated atomic.Pointer[Requeuer]
}

// Requeuer has pods that wait scheduled again.
type Requeuer interface {
	// Requeue has all of them scheduled again. It returns at once.
	Requeue()
}

// New returns the set of these plugins, in that order. A plugin that panics when it is queried for
// its name and abilities is logged and left out. recorder may be nil.
func New(logger klog.Logger, recorder Recorder, plugins ...Named) *Set {
	if recorder == nil {
		recorder = unrecorded{}
	}
	return newSet(logger, clock.RealClock{}, recorder, defaultSizes, plugins...)
}

func newSet(logger klog.Logger, clk clock.WithTicker, recorder Recorder, sizes sizes, plugins ...Named) *Set {
	s := &Set{
		specialists: true,

		claimed: map[types.ResourceName]bool{},
		counted: map[device]types.ResourceName{}, translated: map[device]device{},
		displayNames: devicescheduler.Words{
			Levels: map[string]devicescheduler.Noun{}, Units: map[string]devicescheduler.Unit{},
		},

		remainders:     cache.New[request.Key, *remainder](sizes.remainders),
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
			counts := device{counted.Level, counted.Resource}
			if _, known := s.counted[counts]; !known {
				s.counted[counts] = counted.Plain
			}
		}
		for _, translated := range plugin.translated {
			from := device{translated.Level, translated.Resource}
			if _, known := s.translated[from]; !known {
				s.translated[from] = device{translated.Level, translated.To}
			}
		}
		addDisplayNames(&s.displayNames, plugin.displayNames)
		logger.Info("Device scheduler in use",
			logkey.Plugin, plugin.Name, logkey.File, named.File, logkey.GroupScheduler, plugin.groups)
	}
	s.parts = newCountedParts(s.counted)
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

// OnRetranslation sets the requeuer for when a node has changed how a plugin translates requests:
// pods that wait may then request something else.
func (s *Set) OnRetranslation(requeuer Requeuer) { s.retranslated.Store(&requeuer) }

func (s *Set) announceRetranslation() {
	if requeuer := s.retranslated.Load(); requeuer != nil {
		(*requeuer).Requeue()
	}
}

// CacheStats returns what the caches of the set have done so far, by their names.
func (s *Set) CacheStats() map[string]cache.Stats {
	stats := map[string]cache.Stats{
		"translated_requests": s.remainders.Stats(),
		"placements":          s.groupScheduler.placements.Stats(),
		"reasons":             s.groupScheduler.reasons.Stats(),
	}
	var fits, allocations cache.Stats
	for _, plugin := range s.plugins {
		fits.Add(plugin.fits.Stats())
		fits.Add(plugin.refinements.Stats())
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

// DisplayNames returns the words that the plugins have for their devices. Callers must not change
// them.
func (s *Set) DisplayNames() devicescheduler.Words { return s.displayNames }

// addDisplayNames adds the words of one plugin to those of the plugins before it.
func addDisplayNames(known *devicescheduler.Words, more devicescheduler.Words) {
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

// device is what a plain resource may count: a resource of devices of one level.
type device struct{ level, resource string }

// tolerates reports whether the state of a node can be used without the plugin that returned the
// error.
func (s *Set) tolerates(err error) bool {
	return s.specialists && errors.Is(err, pluginhost.ErrNoAnswer)
}

// isAllocated reports whether a device resource, or a request for one, is that of an allocator.
func (s *Set) isAllocated(name types.ResourceName) bool {
	for _, plugin := range s.plugins {
		if plugin.allocator == nil {
			continue
		}
		if _, ok := plugin.allocator.Allocates(name); ok {
			return true
		}
	}
	return false
}

// accounted returns what the group scheduler accounts for of what a pod holds.
func (s *Set) accounted(held types.ResourceList) types.ResourceList {
	if s.groups {
		return held
	}
	held = maps.Clone(held)
	maps.DeleteFunc(held, func(name types.ResourceName, _ int64) bool { return !s.isAllocated(name) })
	return held
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
