// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/node/kubeletstate"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Given is what the kubelet gave to a container before the resources moved here.
type Given struct {
	PodUID, Container string
	Devices           []types.ResourceName // sorted
}

// Given returns what the kubelet gave to containers of the resources for which kubecri stands in,
// and the resources that the kubelet has by itself. The kubelet keeps entries of pods that are gone
// until it next allocates a device. An error says that the first is unknown.
func (m *Manager) Given() (given []Given, kubelets map[types.ResourceName]bool, err error) {
	m.mu.Lock()
	counted := map[types.ResourceName]bool{}
	names := map[types.ResourceName]map[string]types.ResourceName{} // of listed devices, by resource and ID
	for name, r := range m.resources {
		if !r.counted && !r.adopting {
			continue
		}
		counted[name] = true
		names[name] = map[string]types.ResourceName{}
		for _, d := range r.devices {
			names[name][d.ID] = d.name
		}
	}
	m.mu.Unlock()
	state, err := kubeletstate.Read(filepath.Join(m.options.KubeletDir, kubeletstate.CheckpointName))
	if err != nil {
		if len(counted) == 0 {
			return nil, nil, nil
		}
		return nil, nil, err
	}
	kubelets = map[types.ResourceName]bool{}
	for _, resource := range state.Resources {
		if !counted[resource] {
			kubelets[resource] = true
		}
	}
	for _, holding := range state.Holdings {
		if !counted[holding.Resource] {
			kubelets[holding.Resource] = true
			continue
		}
		if holding.Placeholder {
			continue
		}
		g := Given{PodUID: holding.PodUID, Container: holding.Container}
		for _, id := range holding.IDs {
			name, listed := names[holding.Resource][id]
			if !listed {
				name, err = kubeletdevice.Name(kubeletdevice.Device{
					Resource: holding.Resource, ID: id, NUMA: holding.NUMA[id],
				})
				if err != nil {
					return nil, nil, fmt.Errorf("the kubelet's checkpoint: pod with UID %q: %w", holding.PodUID,
						err)
				}
			}
			g.Devices = append(g.Devices, name)
		}
		slices.Sort(g.Devices)
		given = append(given, g)
	}
	return given, kubelets, nil
}

// GivenTo returns the devices of those resources that the kubelet gives to a container, sorted.
func (m *Manager) GivenTo(podUID, container string) (devices []types.ResourceName, err error) {
	given, _, err := m.Given()
	for _, g := range given {
		if g.PodUID == podUID && g.Container == container {
			devices = append(devices, g.Devices...)
		}
	}
	slices.Sort(devices)
	return devices, err
}

// KubeletCounts reports whether the kubelet counts and publishes a resource of which kubecri gives
// the devices, because kubecri stands in for its plugin there.
func (m *Manager) KubeletCounts(name types.ResourceName) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.resources[name]
	return r != nil && r.counted
}

// takeOver stands in for each resource whose plugin is here while the kubelet still knows it. First
// the pods are adopted that hold devices of it: until that is done, it is not offered.
func (m *Manager) takeOver(ctx context.Context) {
	if m.options.Adopt == nil {
		return
	}
	m.mu.Lock()
	found := map[types.ResourceName]*resource{}
	counted := false
	for name, r := range m.resources {
		switch {
		case r.inherited:
			r.inherited = false
			if r.isListed() {
				m.startStandIn(ctx, r)
			}
		case r.presence != serving || r.standIn != nil:
		case r.counted:
			m.startStandIn(ctx, r) // the plugin was gone for a while
		case r.conflict != nil && r.conflict.Device == "" && m.options.Clock.Since(r.rivalSeen) >= rivalPause:
			r.adopting = true
			found[name] = r
		}
		counted = counted || r.counted || r.adopting
	}
	m.mu.Unlock()
	var withheld map[types.ResourceName]string
	var err error
	if counted {
		withheld, err = m.adopt(ctx)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range found {
		r.adopting = false
	}
	if m.unadopted == nil && err != nil {
		klog.FromContext(ctx).Error(err, "Which pods hold devices that the kubelet gave them is not known; will retry",
			logkey.Resources, slices.Sorted(maps.Keys(found)))
	}
	if m.unadopted = err; err != nil {
		return
	}
	for _, r := range m.resources {
		m.withhold(r, withheld)
	}
	for _, r := range found {
		if r.session != nil {
			klog.FromContext(ctx).Info("Taking over a resource that the kubelet knows", logkey.Resource, r.name)
			m.startStandIn(ctx, r)
		}
	}
}

// adopt calls Options.Adopt.
func (m *Manager) adopt(ctx context.Context) (withheld map[types.ResourceName]string, err error) {
	ctx, cancel := context.WithTimeout(ctx, adoptLimit)
	defer cancel()
	return m.options.Adopt(ctx)
}

// isRemembered reports whether the kubelet still knows the stand-in's resource. If its checkpoint
// was lost, nobody needs to stand in: the resource is this program's alone.
func (m *Manager) isRemembered(ctx context.Context, s *standIn) bool {
	state, err := kubeletstate.Read(filepath.Join(m.options.KubeletDir, kubeletstate.CheckpointName))
	if err != nil || state.Remembers(s.resource) {
		return true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.lookup(s.resource); r.standIn == s {
		klog.FromContext(ctx).Info("The kubelet has forgotten a resource for which kubecri stood in",
			logkey.Resource, r.name)
		r.stopStandIn()
		r.counted = false
		m.touch(r)
		m.drop(r)
	}
	return false
}

// withhold keeps from all pods the resource's devices among these, by name, with what is said of
// each. The caller holds mu.
func (m *Manager) withhold(r *resource, all map[types.ResourceName]string) {
	var withheld map[string]string
	for name, why := range all {
		if d, ok := kubeletdevice.Parse(name); ok && d.Resource == r.name {
			if withheld == nil {
				withheld = map[string]string{}
			}
			withheld[d.ID] = why
		}
	}
	if !maps.Equal(withheld, r.withheld) {
		r.withheld = withheld
		m.touch(r)
	}
}
