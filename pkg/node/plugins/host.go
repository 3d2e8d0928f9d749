// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plugins runs the node's device plugins: it starts them, asks them again and again what they have, and asks them
// what a container needs. A plugin that fails, hangs or panics harms nobody but the pods that hold its devices.
package plugins

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/node/inject"
	"github.com/kubedevice/kubedevice/pkg/pluginload"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Timing says how long plugins may take. All are upper limits except Interval.
type Timing struct {
	// Start limits one try of Start, Update one UpdateNodeInfo, Allocate one Allocate.
	Start, Update, Allocate time.Duration
	// Interval is the pause between two UpdateNodeInfo, and before the second try of Start; the pause doubles with each
	// further try, up to a minute.
	Interval time.Duration
}

// DefaultTiming notices a change within about a second, and gives up on a plugin well before the kubelet gives up on the
// runtime, which is after two minutes.
func DefaultTiming() Timing {
	return Timing{Start: 30 * time.Second, Update: 10 * time.Second, Allocate: 20 * time.Second, Interval: time.Second}
}

// Load returns the plugins that are loaded, and an error for each plugin file that could not be.
type Load func(ctx context.Context) (loaded []pluginload.Loaded[device.Device], rejected []error)

// FromFolder loads the plugin files of a folder, which takes seconds.
func FromFolder(folder string) Load {
	return func(ctx context.Context) ([]pluginload.Loaded[device.Device], []error) {
		return pluginload.LoadDir(ctx, folder, pluginload.Devices())
	}
}

// Host runs a set of plugins. All methods are safe for concurrent use.
type Host struct {
	nodeName string
	load     Load
	timing   Timing
	observe  Observe
	hosted   Hosted // nil for none
	answers  Answers

	mu        sync.Mutex
	sources   []source // nil until loaded
	resources []source // of hosted plugins
	rejected  []error
	inventory *Inventory
	changed   chan struct{} // closed and replaced when inventory is
	loaded    chan struct{} // closed when plugins are loaded
	settled   chan struct{} // closed when inventory has what every plugin told
}

// New returns a host of the plugins that load will return; call Run to have them. Before that, and while loading, the node
// has no devices and the inventory is not complete.
func New(nodeName string, load Load, timing Timing, observe Observe) *Host {
	return &Host{
		nodeName: nodeName, load: load, timing: timing, observe: observe,
		inventory: &Inventory{Node: types.NewNodeInfoWithName(nodeName)},
		changed:   make(chan struct{}), loaded: make(chan struct{}), settled: make(chan struct{}),
	}
}

// Run loads the plugins and runs them until ctx is done. It returns when they are left alone, except for a call that hangs.
func (h *Host) Run(ctx context.Context) {
	loaded, rejected := h.load(ctx)
	var plugins []*plugin
	for _, l := range loaded {
		p, err := adopt(ctx, l, h.timing, h.observe)
		if err != nil {
			klog.FromContext(ctx).Error(err, "A plugin is left out", "file", l.File)
			rejected = append(rejected, err)
			continue
		}
		plugins = append(plugins, p)
	}
	h.mu.Lock()
	h.sources, h.rejected = make([]source, 0, len(plugins)), rejected
	for _, p := range plugins {
		h.sources = append(h.sources, p)
	}
	h.mu.Unlock()
	changed := h.takeHosted()
	h.refresh(ctx)
	close(h.loaded)
	var running sync.WaitGroup
	running.Go(func() { h.followHosted(ctx, changed) })
	for _, p := range plugins {
		running.Go(func() { p.run(ctx, h.nodeName, h.timing, func() { h.refresh(ctx) }) })
	}
	running.Wait()
}

// refresh makes the inventory anew and wakes who waits for a change.
func (h *Host) refresh(ctx context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.inventory
	h.inventory = merge(h.nodeName, slices.Concat(h.sources, h.resources), len(h.rejected) > 0)
	h.inventory.hosts = h.hosted != nil
	if !slices.Equal(before.Conflicts, h.inventory.Conflicts) {
		klog.FromContext(ctx).Info("Device plugins claim the same resources", "conflicts", h.inventory.Conflicts)
	}
	close(h.changed)
	h.changed = make(chan struct{})
	select {
	case <-h.settled:
	default:
		if h.inventory.asked {
			close(h.settled)
		}
	}
}

// Inventory returns what the plugins have now, and a channel that is closed when that is no longer so.
func (h *Host) Inventory() (now *Inventory, changed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.inventory, h.changed
}

// Settled returns a channel that is closed when the inventory has what every plugin told first, except for those that failed
// to tell.
func (h *Host) Settled() <-chan struct{} { return h.settled }

// Allocate asks the plugins that own the container's devices what the container needs, in the plugins' order.
func (h *Host) Allocate(ctx context.Context, claim Claim) ([]inject.Addition, error) {
	inventory, _ := h.Inventory()
	var additions []inject.Addition
	for _, s := range inventory.ownersOf(claim.Container.AllocateFrom) {
		addition, err := s.allocate(ctx, claim, h.timing.Allocate)
		if err != nil {
			return nil, err
		}
		additions = append(additions, addition)
	}
	return additions, nil
}

// DenyEnvs returns the environment variables that keep a container which holds the devices in from, or none, from using
// those of plugins of which it holds none. Of several values for a name the first plugin's counts. It waits until plugins are
// loaded; they need not be well.
func (h *Host) DenyEnvs(ctx context.Context, from types.ResourceLocation) (map[string]string, error) {
	select {
	case <-h.loaded:
	case <-ctx.Done():
		return nil, errLoading
	}
	inventory, _ := h.Inventory()
	holds := inventory.ownersOf(from)
	envs := map[string]string{}
	for _, s := range inventory.sources {
		if slices.Contains(holds, s) {
			continue
		}
		for name, value := range s.denyEnvs() {
			if _, taken := envs[name]; !taken {
				envs[name] = value
			}
		}
	}
	return envs, nil
}

// errLoading is how it stands before plugins are loaded, which takes seconds.
var errLoading = errors.New("device plugins are being loaded")

// Check returns an error that names each plugin that is not well.
func (h *Host) Check() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sources == nil {
		return errLoading
	}
	ill := slices.Clone(h.rejected)
	for _, s := range h.inventory.sources {
		if _, _, err := s.state(); err != nil {
			ill = append(ill, fmt.Errorf("%q: %w", s.label(), err))
		}
	}
	return errors.Join(ill...)
}
