// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/node/statefile"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// socketName is the socket that plugins register at.
const socketName = "kubelet.sock"

// legacyName is the file of releases before package statefile.
const legacyName = "device-plugins.json"

// Metrics counts calls into plugins.
type Metrics interface {
	// ObservePlugin is called after each call into a plugin of a resource.
	ObservePlugin(resource, call string, took time.Duration, err error)
}

// Options configure a manager.
type Options struct {
	// Dir is what plugins take for the kubelet's device-plugins directory. It is created if
	// necessary. Sockets in it are removed at the start: plugins register again when they notice.
	Dir string
	// RegistryDir is what plugins take for the kubelet's plugins_registry directory. Empty means
	// none.
	RegistryDir string
	// KubeletDir is the kubelet's root directory. A plugin of the registry may serve in a directory
	// of its own in there. Empty means that none does.
	KubeletDir string
	// StateFile is the file in which the plugins' devices survive a restart.
	StateFile string
	// KubeletResources has what the kubelet serves; nil stands for nothing.
	KubeletResources KubeletResources
	// Metrics, if set, counts calls into plugins.
	Metrics Metrics
	// Clock, if set, replaces the real one.
	Clock clock.WithDelayedExecution
}

// errNotServing is the state until the socket is there.
var errNotServing = errors.New("device plugins cannot register yet")

// Manager serves device plugins. All methods are safe for concurrent use.
type Manager struct {
	options     Options
	labels      labels
	state       *statefile.File
	running     sync.WaitGroup
	kubeletRead chan struct{} // closed when it was tried once to read what the kubelet serves
	listed      chan struct{} // has an element when a plugin has listed its devices for the first time

	mu        sync.Mutex
	serving   error       // nil while plugins can register
	own       os.FileInfo // the manager's socket, while it serves
	waited    bool        // returnTimeout has passed since the start
	resources map[types.ResourceName]*resource
	calls     map[callKey]*allocateCall             // of Allocate, until their outcome is fetched
	kubelet   map[types.ResourceName]KubeletHolding // what it serves, as of the last time; never changed
	changed   chan struct{}                         // closed and replaced with every change of what States returns
}

// New returns a manager without plugins. Call Load and Run next.
func New(options Options) *Manager {
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	return &Manager{
		options: options, labels: machine{}, state: stateFile(options.StateFile), serving: errNotServing,
		resources: map[types.ResourceName]*resource{}, calls: map[callKey]*allocateCall{},
		changed: make(chan struct{}), kubeletRead: make(chan struct{}),
		listed: make(chan struct{}, 1),
	}
}

func stateFile(path string) *statefile.File {
	return &statefile.File{Path: path, Kind: "devices", Legacy: filepath.Join(filepath.Dir(path), legacyName)}
}

// States returns the state of each resource, by name, and a channel that is closed when one
// changes.
func (m *Manager) States() (now []State, changed <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.resources {
		if s := r.snapshot(); s.Info != nil || s.Err != nil || s.Withheld != nil {
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
		return fmt.Errorf(
			"device plugins cannot register: %s was removed, or another process serves it; restart kubecri", m.socket())
	}
	return m.serving
}

func (m *Manager) socket() string { return filepath.Join(m.options.Dir, socketName) }

// setServing records that the manager serves its own socket, or why it does not.
func (m *Manager) setServing(own os.FileInfo, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.own, m.serving = own, err
}

// isReplaced reports whether the socket is no longer the manager's own: another process has taken
// over the directory, as in a hand-over. The caller holds mu.
func (m *Manager) isReplaced() bool {
	if m.own == nil {
		return false
	}
	now, err := os.Lstat(m.socket())
	return err != nil || !os.SameFile(now, m.own) || !now.ModTime().Equal(m.own.ModTime())
}

// touch records a change of r. The caller holds mu.
func (m *Manager) touch(r *resource) {
	r.state = nil
	close(m.changed)
	m.changed = make(chan struct{})
}

// resource returns the resource, which is kept if it is new: see drop. The caller holds mu.
func (m *Manager) resource(name types.ResourceName) *resource {
	r := m.lookup(name)
	m.resources[name] = r
	return r
}

// lookup returns the resource, which is not kept if it is new. The caller holds mu.
func (m *Manager) lookup(name types.ResourceName) *resource {
	if r := m.resources[name]; r != nil {
		return r
	}
	return &resource{name: name, reported: m.waited, unserved: errUnregistered(name)}
}
