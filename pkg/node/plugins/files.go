// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/node/inject"
	"github.com/kubedevice/kubedevice/pkg/pluginload"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Timing says how long plugins may take. All are upper limits except Interval.
type Timing struct {
	// Start limits one try of Start, Update one UpdateNodeInfo, Allocate one Allocate.
	Start, Update, Allocate time.Duration
	// Interval is the time between two UpdateNodeInfo, and before the second try of Start; the
	// time doubles with each further try, up to a minute.
	Interval time.Duration
}

// DefaultTiming notices a change within about a second, and gives up on a plugin well before the
// kubelet gives up on the runtime, which is after two minutes.
func DefaultTiming() Timing {
	return Timing{Start: 30 * time.Second, Update: 10 * time.Second, Allocate: 20 * time.Second, Interval: time.Second}
}

// Metrics counts calls into plugins.
type Metrics interface {
	// ObservePlugin is called for each call into a plugin when its caller has the outcome.
	ObservePlugin(plugin, call string, took time.Duration, err error)
}

// Load returns the plugins that are loaded, and an error for each plugin file that could not be.
type Load func(ctx context.Context) (loaded []pluginload.Loaded[device.Device], rejected []error)

// FromDirectory loads the plugin files of a directory, which takes seconds. It leaves out those
// that other users may change, unless allowWritable is set.
func FromDirectory(directory string, allowWritable bool) Load {
	return func(ctx context.Context) ([]pluginload.Loaded[device.Device], []error) {
		return pluginload.LoadDir(ctx, directory, pluginload.Devices().AllowWritable(allowWritable))
	}
}

// Holdings knows the devices of the node that pods hold, for plugins that make devices themselves.
type Holdings interface {
	// Held returns the devices, each by what the names of its resources have in common, and whether
	// there are no others. It returns at once. The list is the caller's.
	Held() (devices []string, complete bool)
}

// unknownHoldings knows nothing of holders.
type unknownHoldings struct{}

// Held implements Holdings.
func (unknownHoldings) Held() (devices []string, complete bool) { return nil, false }

// Files is the Transport of plugin files.
type Files struct {
	nodeName string
	load     Load
	timing   Timing
	metrics  Metrics // nil for none

	mu      sync.Mutex
	sources []Source
	loaded  bool
	changed chan struct{} // closed and replaced when any source changes
}

var _ Transport = (*Files)(nil)

// NewFiles returns the transport of the plugins that load will return; call Run. metrics may be
// nil.
func NewFiles(nodeName string, load Load, timing Timing, metrics Metrics) *Files {
	return &Files{
		nodeName: nodeName, load: load, timing: timing, metrics: metrics, changed: make(chan struct{}),
	}
}

// Run is RunWith for plugins of which none makes devices itself: nothing is known of holders.
func (f *Files) Run(ctx context.Context) { f.RunWith(ctx, unknownHoldings{}) }

// RunWith loads the plugins and runs them until ctx is done, and reports to those that make devices
// themselves what pods hold. It returns when no plugin is called, except for a call that hangs.
func (f *Files) RunWith(ctx context.Context, holdings Holdings) {
	loaded, rejected := f.load(ctx)
	var plugins []*plugin
	var sources []Source
	for _, l := range loaded {
		p, err := newPlugin(ctx, l, f.timing, f.metrics)
		if err != nil {
			klog.FromContext(ctx).Error(err, "A device plugin cannot be used", logkey.File, l.File)
			rejected = append(rejected, err)
			continue
		}
		plugins, sources = append(plugins, p), append(sources, p)
	}
	for _, err := range rejected {
		sources = append(sources, unusableSource{err})
	}
	f.mu.Lock()
	f.sources, f.loaded = sources, true
	f.mu.Unlock()
	f.notify()
	var running sync.WaitGroup
	for _, p := range plugins {
		running.Go(func() { p.run(ctx, f.nodeName, holdings, f.notify) })
	}
	running.Wait()
}

// notify wakes who waits for a change.
func (f *Files) notify() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.changed)
	f.changed = make(chan struct{})
}

// Sources implements Transport.
func (f *Files) Sources() (now []Source, loaded bool, changed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sources, f.loaded, f.changed
}

// Late implements Transport: plugin files are loaded at the start or not at all.
func (f *Files) Late(types.ResourceName) (label string, late bool) { return "", false }

// unusableSource stands for a plugin file that cannot be used. It has no devices.
type unusableSource struct{ err error }

func (u unusableSource) Label() string                 { return "unusable plugin file" }
func (u unusableSource) State() State                  { return State{Reported: true, Err: u.err} }
func (u unusableSource) Firewall(bool) device.Firewall { return device.Firewall{} }
func (u unusableSource) Allocate(context.Context, Claim) (inject.Addition, error) {
	return inject.Addition{}, u.err
}
