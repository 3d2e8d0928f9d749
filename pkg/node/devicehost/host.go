// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicehost

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

// Served returns the extended resources that the kubelet knows, each with the ID of a device that it would give to pods, or
// without one if it knows the resource and no more: of a plugin that has left. An error says that it cannot be told. It is
// asked at each registration and again and again after that.
type Served func(ctx context.Context) (map[types.ResourceName]string, error)

// Observe is told of each call into a plugin of a resource when its outcome is known.
type Observe func(resource, call string, took time.Duration, err error)

// Options say where a host serves.
type Options struct {
	// Folder is what plugins take for the kubelet's device-plugins folder. It is made if it is not there; sockets in it are
	// removed at the start, which is how plugins learn that they must register again.
	Folder string
	// Registry is what plugins take for the kubelet's plugins_registry folder; empty means that there is none.
	Registry string
	// Memory is the file in which the plugins' devices outlive a restart.
	Memory string
	// Served is asked what the kubelet serves; nil means nothing.
	Served Served
	// Observe, if set, is told of each call.
	Observe Observe
	// Clock, if set, is used in place of the real one.
	Clock clock.WithDelayedExecution
}

// errNotServing is the state before the socket is there.
var errNotServing = errors.New("device plugins cannot register yet")

// Host hosts device plugins. All methods are safe for concurrent use.
type Host struct {
	options Options
	memory  *statefile.File

	running sync.WaitGroup

	mu        sync.Mutex
	serving   error       // nil while plugins can register
	own       os.FileInfo // the host's socket, when it serves
	waited    bool        // plugins had time to come back after the start
	resources map[types.ResourceName]*resource
	changed   chan struct{} // closed and replaced when anything that States returns changes
}

// New returns a host that has no plugins; call Load and Run.
func New(options Options) *Host {
	if options.Served == nil {
		options.Served = func(context.Context) (map[types.ResourceName]string, error) { return nil, nil }
	}
	if options.Observe == nil {
		options.Observe = func(string, string, time.Duration, error) {}
	}
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	return &Host{
		options: options, memory: memoryFile(options.Memory), serving: errNotServing,
		resources: map[types.ResourceName]*resource{}, changed: make(chan struct{}),
	}
}

// States returns what is known of each resource, by name, and a channel that is closed when that is no longer so.
func (h *Host) States() (now []State, changed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.resources {
		if s := r.snapshot(); s.Info != nil || s.Err != nil {
			now = append(now, s)
		}
	}
	slices.SortFunc(now, func(a, b State) int { return cmp.Compare(a.Resource, b.Resource) })
	return now, h.changed
}

// Check returns an error while plugins cannot register.
func (h *Host) Check() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.serving == nil && h.isReplaced() {
		return fmt.Errorf("device plugins cannot register: %s was removed, or another process serves it; restart kubecri", h.socket())
	}
	return h.serving
}

func (h *Host) socket() string { return filepath.Join(h.options.Folder, socketName) }

// setServing notes that the host serves its own socket, or why it does not.
func (h *Host) setServing(own os.FileInfo, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.own, h.serving = own, err
}

// isReplaced reports whether the socket is not the host's own any more: another process has taken the folder over, as in a
// hand-over. The caller holds mu.
func (h *Host) isReplaced() bool {
	if h.own == nil {
		return false
	}
	now, err := os.Lstat(h.socket())
	return err != nil || !os.SameFile(now, h.own) || !now.ModTime().Equal(h.own.ModTime())
}

// touch notes that r is another than before. The caller holds mu.
func (h *Host) touch(r *resource) {
	r.state = nil
	close(h.changed)
	h.changed = make(chan struct{})
}

// resource returns what is known of the resource. The caller holds mu.
func (h *Host) resource(name types.ResourceName) *resource {
	r := h.resources[name]
	if r == nil {
		r = &resource{name: name, told: h.waited, lost: unknownError(name)}
		h.resources[name] = r
	}
	return r
}

// begin makes s the session of its resource, and follows it.
func (h *Host) begin(ctx context.Context, s *session, inTheWay *rival) {
	h.mu.Lock()
	r := h.resource(s.resource)
	before := r.session
	r.session, r.lost, r.refused, r.rival = s, nil, nil, inTheWay
	if r.expiry != nil {
		r.expiry.Stop()
		r.expiry = nil
	}
	h.touch(r)
	h.mu.Unlock()
	if before != nil {
		before.close()
	}
	h.running.Go(func() {
		defer close(s.ended)
		defer s.close()
		logger := klog.LoggerWithValues(klog.FromContext(ctx), "resource", s.resource, "socket", s.socket)
		err := s.follow(ctx, func(list []*pluginapi.Device) { h.take(klog.NewContext(ctx, logger), s, list) })
		h.end(klog.NewContext(ctx, logger), s, err)
	})
}

// take replaces the devices of the session's resource, unless the session is over.
func (h *Host) take(ctx context.Context, s *session, list []*pluginapi.Device) {
	devices, err := readList(s.resource, list)
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.resource(s.resource)
	if r.session != s {
		return
	}
	if err != nil {
		err = fmt.Errorf("the device plugin of %s sent a list that cannot be used, so the one before stays: %w", s.resource, err)
		klog.FromContext(ctx).Error(err, "A device plugin's list is refused")
		r.refused, r.told = err, true
		h.touch(r)
		return
	}
	same := s.listed && r.serving && r.refused == nil && equalLists(r.devices, devices)
	s.listed = true
	if same {
		return
	}
	klog.FromContext(ctx).V(2).Info("A device plugin lists its devices", "devices", len(devices), "healthy", healthy(devices))
	r.devices, r.listed, r.serving, r.told, r.refused = devices, true, true, true, nil
	h.touch(r)
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
func (h *Host) end(ctx context.Context, s *session, cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.resource(s.resource)
	if r.session != s || ctx.Err() != nil {
		return
	}
	if h.isReplaced() {
		klog.FromContext(ctx).Info("A device plugin has left for the process that serves the folder now")
		return
	}
	r.session, r.serving, r.refused, r.told = nil, false, nil, true
	h.lose(r, lostError(r.name, h.options.Clock.Now(), cause))
	klog.FromContext(ctx).Info("A device plugin is gone", "reason", cause, "kept", Keep)
}

// lose notes that nobody serves r, which is forgotten after Keep. The caller holds mu.
func (h *Host) lose(r *resource, why error) {
	r.lost = why
	h.touch(r)
	var expiry clock.Timer
	expiry = h.options.Clock.AfterFunc(Keep, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if r.expiry == expiry {
			h.forget(r)
		}
	})
	r.expiry = expiry
}

// forget forgets the devices of r, which nobody serves. The caller holds mu.
func (h *Host) forget(r *resource) {
	r.expiry, r.devices, r.listed = nil, nil, false
	r.lost = unknownError(r.name)
	h.touch(r)
}
