// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/node/statefile"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// KubeletResources returns the extended resources that the kubelet knows, each with the ID of a device that it would give to pods, or
// without one if it knows the resource and no more: of a plugin that has left. An error says that it cannot be told. It is
// asked at each registration and again and again after that.
type KubeletResources func(ctx context.Context) (map[types.ResourceName]string, error)

// Observe is told of each call into a plugin of a resource when its outcome is known.
type Observe func(resource, call string, took time.Duration, err error)

// Options say where a host serves.
type Options struct {
	// Dir is what plugins take for the kubelet's device-plugins folder. It is made if it is not there; sockets in it are
	// removed at the start, which is how plugins learn that they must register again.
	Dir string
	// RegistryDir is what plugins take for the kubelet's plugins_registry folder; empty means that there is none.
	RegistryDir string
	// StateFile is the file in which the plugins' devices outlive a restart.
	StateFile string
	// KubeletResources is asked what the kubelet serves; nil means nothing.
	KubeletResources KubeletResources
	// Observe, if set, is told of each call.
	Observe Observe
	// Clock, if set, is used in place of the real one.
	Clock clock.WithDelayedExecution
}

// errNotServing is the state before the socket is there.
var errNotServing = errors.New("device plugins cannot register yet")

// Manager serves device plugins. All methods are safe for concurrent use.
type Manager struct {
	options Options
	state   *statefile.File

	running sync.WaitGroup

	mu        sync.Mutex
	serving   error       // nil while plugins can register
	own       os.FileInfo // the host's socket, when it serves
	waited    bool        // plugins had time to come back after the start
	resources map[types.ResourceName]*resource
	changed   chan struct{} // closed and replaced when anything that States returns changes
}

// New returns a host that has no plugins; call Load and Run.
func New(options Options) *Manager {
	if options.KubeletResources == nil {
		options.KubeletResources = func(context.Context) (map[types.ResourceName]string, error) { return nil, nil }
	}
	if options.Observe == nil {
		options.Observe = func(string, string, time.Duration, error) {}
	}
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	return &Manager{
		options: options, state: stateFile(options.StateFile), serving: errNotServing,
		resources: map[types.ResourceName]*resource{}, changed: make(chan struct{}),
	}
}

// States returns what is known of each resource, by name, and a channel that is closed when that is no longer so.
func (m *Manager) States() (now []State, changed <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.resources {
		if s := r.snapshot(); s.Info != nil || s.Err != nil {
			now = append(now, s)
		}
	}
	slices.SortFunc(now, func(a, b State) int { return cmp.Compare(a.Resource, b.Resource) })
	return now, m.changed
}

// Check returns an error while plugins cannot register.
func (m *Manager) Check() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.serving == nil && m.isReplaced() {
		return fmt.Errorf("device plugins cannot register: %s was removed, or another process serves it; restart kubecri", m.socket())
	}
	return m.serving
}

func (m *Manager) socket() string { return filepath.Join(m.options.Dir, socketName) }

// setServing notes that the host serves its own socket, or why it does not.
func (m *Manager) setServing(own os.FileInfo, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.own, m.serving = own, err
}

// isReplaced reports whether the socket is not the host's own any more: another process has taken the folder over, as in a
// hand-over. The caller holds mu.
func (m *Manager) isReplaced() bool {
	if m.own == nil {
		return false
	}
	now, err := os.Lstat(m.socket())
	return err != nil || !os.SameFile(now, m.own) || !now.ModTime().Equal(m.own.ModTime())
}

// touch notes that r is another than before. The caller holds mu.
func (m *Manager) touch(r *resource) {
	r.state = nil
	close(m.changed)
	m.changed = make(chan struct{})
}

// resource returns what is known of the resource. The caller holds mu.
func (m *Manager) resource(name types.ResourceName) *resource {
	r := m.resources[name]
	if r == nil {
		r = &resource{name: name, told: m.waited, lost: unknownError(name)}
		m.resources[name] = r
	}
	return r
}

// begin makes s the session of its resource, and follows it.
func (m *Manager) begin(ctx context.Context, s *session, inTheWay *rival) {
	m.mu.Lock()
	r := m.resource(s.resource)
	before := r.session
	r.session, r.lost, r.refused, r.rival = s, nil, nil, inTheWay
	if r.expiry != nil {
		r.expiry.Stop()
		r.expiry = nil
	}
	m.touch(r)
	m.mu.Unlock()
	if before != nil {
		before.close()
	}
	m.running.Go(func() {
		defer close(s.ended)
		defer s.close()
		logger := klog.LoggerWithValues(klog.FromContext(ctx), "resource", s.resource, "socket", s.socket)
		err := s.follow(ctx, func(list []*pluginapi.Device) { m.take(klog.NewContext(ctx, logger), s, list) })
		m.end(klog.NewContext(ctx, logger), s, err)
	})
}

// take replaces the devices of the session's resource, unless the session is over.
func (m *Manager) take(ctx context.Context, s *session, list []*pluginapi.Device) {
	devices, err := readList(s.resource, list)
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.resource(s.resource)
	if r.session != s {
		return
	}
	if err != nil {
		err = fmt.Errorf("the device plugin of %s sent a list that cannot be used, so the one before stays: %w", s.resource, err)
		klog.FromContext(ctx).Error(err, "A device plugin's list is refused")
		r.refused, r.told = err, true
		m.touch(r)
		return
	}
	same := s.listed && r.serving && r.refused == nil && equalLists(r.devices, devices)
	s.listed = true
	if same {
		return
	}
	klog.FromContext(ctx).V(2).Info("A device plugin lists its devices", "devices", len(devices), "healthy", healthy(devices))
	r.devices, r.listed, r.serving, r.told, r.refused = devices, true, true, true, nil
	m.touch(r)
}

func healthy(devices []entry) int {
	count := 0
	for _, d := range devices {
		if d.healthy {
			count++
		}
	}
	return count
}

// end notes that the session's stream is over. A plugin that has left for another kubecri is not lost: that one tells of its
// devices, and this one must not say otherwise while it drains.
func (m *Manager) end(ctx context.Context, s *session, cause error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.resource(s.resource)
	if r.session != s || ctx.Err() != nil {
		return
	}
	if m.isReplaced() {
		klog.FromContext(ctx).Info("A device plugin has left for the process that serves the folder now")
		return
	}
	r.session, r.serving, r.refused, r.told = nil, false, nil, true
	m.lose(r, lostError(r.name, m.options.Clock.Now(), cause))
	klog.FromContext(ctx).Info("A device plugin is gone", "reason", cause, "kept", Keep)
}

// lose notes that nobody serves r, which is forgotten after Keep. The caller holds mu.
func (m *Manager) lose(r *resource, why error) {
	r.lost = why
	m.touch(r)
	var expiry clock.Timer
	expiry = m.options.Clock.AfterFunc(Keep, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if r.expiry == expiry {
			m.forget(r)
		}
	})
	r.expiry = expiry
}

// forget forgets the devices of r, which nobody serves. The caller holds mu.
func (m *Manager) forget(r *resource) {
	r.expiry, r.devices, r.listed = nil, nil, false
	r.lost = unknownError(r.name)
	m.touch(r)
}
