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

	mu        sync.Mutex
	plugins   []*plugin // nil until loaded
	rejected  []error
	inventory *Inventory
	changed   chan struct{} // closed and replaced when inventory is
	settled   chan struct{} // closed when every plugin was asked
}

// New returns a host of the plugins that load will return; call Run to have them. Before that, and while loading, the node
// has no devices and the inventory is not complete.
func New(nodeName string, load Load, timing Timing, observe Observe) *Host {
	return &Host{
		nodeName: nodeName, load: load, timing: timing, observe: observe,
		inventory: &Inventory{Node: types.NewNodeInfoWithName(nodeName)},
		changed:   make(chan struct{}), settled: make(chan struct{}),
	}
}

// Run loads the plugins and runs them until ctx is done. It returns when they are left alone, except for a call that hangs.
func (h *Host) Run(ctx context.Context) {
	loaded, rejected := h.load(ctx)
	plugins := make([]*plugin, 0, len(loaded))
	for _, l := range loaded {
		concurrent, ok := l.Plugin.(device.ConcurrentSafe)
		plugins = append(plugins, &plugin{
			name: l.Name, device: l.Plugin, err: errNotStarted,
			line: newLine(l.Name, ok && concurrent.ConcurrentSafe(), h.observe),
		})
	}
	h.mu.Lock()
	h.plugins, h.rejected = plugins, rejected
	h.mu.Unlock()
	h.refresh(ctx)
	var running sync.WaitGroup
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
	h.inventory = merge(h.nodeName, h.plugins, len(h.rejected) > 0)
	if !slices.Equal(before.Conflicts, h.inventory.Conflicts) {
		klog.FromContext(ctx).Info("Device plugins claim the same resources", "conflicts", h.inventory.Conflicts)
	}
	close(h.changed)
	h.changed = make(chan struct{})
	select {
	case <-h.settled:
	default:
		if !slices.ContainsFunc(h.plugins, func(p *plugin) bool { _, asked, _ := p.state(); return !asked }) {
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

// Settled returns a channel that is closed when every plugin has told its devices, or failed to, for the first time.
func (h *Host) Settled() <-chan struct{} { return h.settled }

// Allocate asks the plugins that own the container's devices what the container needs, in the plugins' order.
func (h *Host) Allocate(ctx context.Context, pod *types.PodInfo, container *types.ContainerInfo) ([]inject.Addition, error) {
	inventory, _ := h.Inventory()
	var additions []inject.Addition
	for _, p := range inventory.ownersOf(container.AllocateFrom) {
		addition, err := p.allocate(ctx, pod, container, h.timing.Allocate)
		if err != nil {
			return nil, err
		}
		additions = append(additions, addition)
	}
	return additions, nil
}

// Check returns an error that names each plugin that is not well.
func (h *Host) Check() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.plugins == nil {
		return errors.New("device plugins are being loaded")
	}
	ill := slices.Clone(h.rejected)
	for _, p := range h.plugins {
		if _, _, err := p.state(); err != nil {
			ill = append(ill, fmt.Errorf("%q: %w", p.name, err))
		}
	}
	return errors.Join(ill...)
}
