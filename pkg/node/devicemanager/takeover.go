// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"context"
	"maps"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// registrationGrace is how long a takeover lasts when the plugin is gone: a pod that was bound
// before is admitted, and its container waits for the plugin.
const registrationGrace = 30 * time.Second

// Takeover is a resource that the kubelet is to have from this program, in the place of its plugin.
// All methods are safe for concurrent use.
type Takeover struct {
	// Resource is the extended resource.
	Resource types.ResourceName

	manager *Manager
	ended   chan struct{} // closed under the manager's mu
}

// KubeletDevice is a device as the kubelet is to have it.
type KubeletDevice struct {
	ID   string
	Name types.ResourceName // on the node
	// Unhealthy says that the plugin lists it as unhealthy. While the plugin is gone, which is not
	// for long, no device is.
	Unhealthy bool
}

// Ended returns a channel that is closed when the kubelet is not to have the resource any more.
func (t *Takeover) Ended() <-chan struct{} { return t.ended }

// Devices returns the resource's devices, in the order of their IDs, and a channel that is closed
// when they may be others.
func (t *Takeover) Devices() (list []KubeletDevice, changed <-chan struct{}) {
	t.manager.mu.Lock()
	defer t.manager.mu.Unlock()
	r := t.manager.lookup(t.Resource)
	for _, d := range r.devices {
		list = append(list, KubeletDevice{d.ID, d.name, r.isAllocatable() && !d.healthy})
	}
	return list, t.manager.changed
}

// Offer lets pods be given the resource's devices: the kubelet has them.
func (t *Takeover) Offer() {
	t.manager.mu.Lock()
	defer t.manager.mu.Unlock()
	if r := t.manager.lookup(t.Resource); r.takeover == t && r.ownership == registering {
		t.manager.move(r, registered)
	}
}

// Forget ends the takeover: the kubelet has forgotten the resource, which is this program's alone.
func (t *Takeover) Forget(ctx context.Context) {
	t.manager.mu.Lock()
	defer t.manager.mu.Unlock()
	if r := t.manager.lookup(t.Resource); r.takeover == t {
		klog.FromContext(ctx).Info("The kubelet has forgotten a resource that kubecri had taken over",
			logkey.Resource, r.name)
		t.manager.move(r, other)
		t.manager.drop(r)
	}
}

// Yield leaves a resource that is taken over to a plugin that has registered with the kubelet in
// the place of this program, and gave a container of the pod a device. Nothing else distinguishes
// the two: the kubelet has the same devices with both. It remembers that device as long as the pod
// exists, also when the plugin has left, so each pod counts once.
func (m *Manager) Yield(ctx context.Context, name types.ResourceName, podUID string) {
	known, err := m.kubeletResources(ctx)
	if err != nil {
		klog.FromContext(ctx).Error(err, "What the kubelet has of a resource is unknown", logkey.Resource, name)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.resources[name]
	if r == nil || r.ownership != registered || r.yieldedFor[podUID] {
		return // what the kubelet has of it is looked at
	}
	if r.yieldedFor == nil {
		r.yieldedFor = map[string]bool{}
	}
	r.yieldedFor[podUID] = true
	klog.FromContext(ctx).Info("Leaving a resource to a plugin that has registered with the kubelet",
		logkey.Resource, name)
	r.conflict, r.rivalSeen = &conflict{name, known[name]}, m.options.Clock.Now()
	m.move(r, other)
}

// KubeletCounts reports whether the kubelet counts and publishes a resource of which this program
// allocates the devices, because it was taken over.
func (m *Manager) KubeletCounts(name types.ResourceName) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.resources[name]
	return r != nil && r.ownership.isTaken()
}

// IsTakenOver reports whether a resource that a plugin has registered here is taken over from the
// kubelet, or about to be, and not left again.
func (m *Manager) IsTakenOver(name types.ResourceName) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.resources[name]
	return r != nil && r.ownership != other && r.ownership != away
}

// TakenOver returns, for each resource that is taken over or about to be, the names of its devices
// by their IDs.
func (m *Manager) TakenOver() map[types.ResourceName]map[string]types.ResourceName {
	m.mu.Lock()
	defer m.mu.Unlock()
	taken := map[types.ResourceName]map[string]types.ResourceName{}
	for name, r := range m.resources {
		if r.ownership == other {
			continue
		}
		taken[name] = map[string]types.ResourceName{}
		for _, d := range r.devices {
			taken[name][d.ID] = d.name
		}
	}
	return taken
}

// Resume returns the resources that the process before this one had taken over, and those whose
// plugins were gone for a while: the kubelet is to have them from this program again. It has
// those that are excluded from this program in the place of another: they stay away.
func (m *Manager) Resume(excluded func(types.ResourceName) bool) []*Takeover {
	m.mu.Lock()
	defer m.mu.Unlock()
	var resumed []*Takeover
	for _, r := range m.resources {
		switch {
		case excluded(r.name):
			if r.ownership == inherited {
				m.move(r, away)
			}
		case r.ownership == inherited && r.isListed():
			resumed = append(resumed, m.beginTakeover(r, registered))
		case r.ownership == inherited:
			m.move(r, away)
		case r.ownership == away && r.presence == serving && r.conflict == nil:
			resumed = append(resumed, m.beginTakeover(r, registering))
		}
	}
	return resumed
}

// Contest returns the resources whose plugins are here while the kubelet remembers them, without
// those that are excluded. They are about to be taken over until TakeOver or Leave is called with
// them.
func (m *Manager) Contest(excluded func(types.ResourceName) bool) []types.ResourceName {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []types.ResourceName
	for name, r := range m.resources {
		if excluded(name) {
			continue
		}
		if r.ownership == other && r.presence == serving && r.conflict != nil && r.conflict.Device == "" &&
			m.options.Clock.Since(r.rivalSeen) >= RivalInterval {
			m.move(r, adopting)
			found = append(found, name)
		}
	}
	return found
}

// TakeOver takes over the resources that Contest returned, as far as their plugins are still here.
// The caller knows which pods hold their devices.
func (m *Manager) TakeOver(ctx context.Context, contested []types.ResourceName) []*Takeover {
	m.mu.Lock()
	defer m.mu.Unlock()
	var begun []*Takeover
	for _, name := range contested {
		r := m.resources[name]
		if r.session == nil {
			m.leave(r)
			continue
		}
		klog.FromContext(ctx).Info("Taking over a resource that the kubelet remembers", logkey.Resource, name)
		begun = append(begun, m.beginTakeover(r, registering))
	}
	return begun
}

// Leave leaves the resources that Contest returned to the kubelet for now.
func (m *Manager) Leave(contested []types.ResourceName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range contested {
		m.leave(m.resources[name])
	}
}

// leave is Leave for a resource. The caller holds mu.
func (m *Manager) leave(r *resource) {
	m.move(r, other)
	m.drop(r)
}

// beginTakeover begins a takeover of r. The caller holds mu.
func (m *Manager) beginTakeover(r *resource, as ownership) *Takeover {
	r.takeover = &Takeover{Resource: r.name, manager: m, ended: make(chan struct{})}
	r.conflict = nil
	m.move(r, as)
	if r.session == nil {
		m.expireTakeover(r)
	}
	return r.takeover
}

// expireTakeover has the takeover of r end if its plugin is not back in time. The caller holds mu.
func (m *Manager) expireTakeover(r *resource) {
	var grace clock.Timer
	grace = m.options.Clock.AfterFunc(registrationGrace, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if r.grace == grace {
			r.grace = nil
			m.endTakeover(r)
		}
	})
	r.grace = grace
}

// endTakeover has the kubelet not have the resource from this program any more. The caller holds
// mu.
func (m *Manager) endTakeover(r *resource) {
	if r.takeover != nil {
		m.move(r, away)
	}
}

// Withhold keeps these devices from all pods, by name, each with the reason, and no others any
// more.
func (m *Manager) Withhold(all map[types.ResourceName]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.resources {
		var withheld map[string]string
		for name, reason := range all {
			if d, ok := kubeletdevice.Parse(name); ok && d.Resource == r.name {
				if withheld == nil {
					withheld = map[string]string{}
				}
				withheld[d.ID] = reason
			}
		}
		if !maps.Equal(withheld, r.withheld) {
			r.withheld = withheld
			m.touch(r)
		}
	}
}

// move moves r to another ownership. Where this program is not registered any more, its takeover
// ends. The caller holds mu.
func (m *Manager) move(r *resource, to ownership) {
	r.ownership = to
	if r.takeover != nil && to != registering && to != registered {
		close(r.takeover.ended)
		r.takeover = nil
	}
	m.touch(r)
}
