// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"sync"

	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/node/statefile"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Plugins are the device plugins of a node. *plugins.Manager is one.
type Plugins interface {
	// Loaded returns a channel that is closed when the plugins are loaded, as far as they can be.
	Loaded() <-chan struct{}
	// Firewalls returns, by the plugin's name, how containers could help themselves to the plugins'
	// devices, for a container that holds the devices in from. complete says that there is no
	// plugin that could not be loaded.
	Firewalls(from types.ResourceLocation) (all map[string]device.Firewall, complete bool)
}

// errLoading is the state before plugins are loaded, which takes seconds.
var errLoading = errors.New("device plugins are being loaded")

// memory keeps what plugins said in a state file, for as long as some cannot be loaded.
type memory struct {
	file *statefile.File // nil for none

	mu   sync.Mutex
	last map[string]device.Firewall // nil if nothing is known
}

func newMemory(path string) *memory {
	m := &memory{}
	if path != "" {
		m.file = &statefile.File{Path: path, Kind: "firewall"}
	}
	return m
}

// load reads the state file.
func (m *memory) load(ctx context.Context) {
	if m.file == nil {
		return
	}
	var last map[string]device.Firewall
	err := m.file.Load(func(body []byte) error { return json.Unmarshal(body, &last) })
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		klog.FromContext(ctx).Error(err,
			"The firewall rules of device plugins are unknown until the plugins are loaded")
	}
	if err == nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.last = last
	}
}

// learn takes over what the plugins say, and saves it. What a plugin said that cannot be loaded now
// is kept: which one that is is unknown, so all are.
func (m *memory) learn(ctx context.Context, plugins Plugins) {
	all, complete := plugins.Firewalls(nil)
	m.mu.Lock()
	next := map[string]device.Firewall{}
	maps.Copy(next, all)
	if !complete {
		for name, said := range m.last {
			if _, loaded := next[name]; !loaded {
				next[name] = said
			}
		}
	}
	m.last = next
	m.mu.Unlock()
	if m.file == nil {
		return
	}
	if err := m.file.Save(next); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot save the firewall rules of device plugins")
	}
}

// rules returns what plugins say as rules, for a container that holds the devices in from. Before
// they are loaded it is what they said before the start; a node where none was ever loaded waits.
func (m *memory) rules(ctx context.Context, plugins Plugins, from types.ResourceLocation) ([]*vendor, error) {
	m.mu.Lock()
	said := maps.Clone(m.last)
	m.mu.Unlock()
	select {
	case <-plugins.Loaded():
	default:
		if said != nil {
			return rulesOf(said), nil
		}
		select {
		case <-plugins.Loaded():
		case <-ctx.Done():
			return nil, errLoading
		}
	}
	now, complete := plugins.Firewalls(from)
	everyone, _ := plugins.Firewalls(nil)
	if said == nil || complete {
		return rulesOf(now), nil
	}
	for name := range everyone {
		delete(said, name)
	}
	maps.Copy(said, now)
	return rulesOf(said), nil
}

func rulesOf(said map[string]device.Firewall) []*vendor {
	var rules []*vendor
	for _, name := range slices.Sorted(maps.Keys(said)) {
		declared := Vendor{
			Name: name, CDIKinds: said[name].CDIKinds, MountPaths: said[name].MountPaths,
			DeviceFiles: said[name].DeviceFiles, OtherDrivers: said[name].OtherDrivers,
		}
		for _, env := range slices.Sorted(maps.Keys(said[name].Envs)) {
			declared.Variables = append(declared.Variables, Variable{Name: env, Nothing: said[name].Envs[env]})
		}
		for _, env := range said[name].Variables {
			declared.Variables = append(declared.Variables,
				Variable{Name: env.Name, Nothing: env.Nothing, Takes: Takes(env.Takes)})
		}
		rules = append(rules, declared.vendor())
	}
	return rules
}

// Run keeps what the device plugins say for the next start. It returns when that is done, or ctx.
func (f *Firewall) Run(ctx context.Context) {
	select {
	case <-f.options.Plugins.Loaded():
		f.memory.learn(ctx, f.options.Plugins)
	case <-ctx.Done():
	}
}

// Load reads what device plugins said before the start. It must be called before Run, if at all.
func (f *Firewall) Load(ctx context.Context) { f.memory.load(ctx) }
