// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plugins manages the node's device plugins: it merges what they report into the node's
// inventory, and queries them for what a container needs. A plugin that fails, hangs or panics
// affects only the pods that hold its devices.
//
// Plugins come by a [Transport]; [Files] is the one for plugin files.
package plugins

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/node/inject"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// awaitTimeout is how long a container waits for late sources of its devices. With the time limits
// of the calls after that it stays below the two minutes after which the kubelet gives up on the
// runtime.
const awaitTimeout = 50 * time.Second

// Manager manages the sources of some transports. All methods are safe for concurrent use.
type Manager struct {
	*Latest
	nodeName   string
	transports []Transport

	refreshing sync.Mutex
	loaded     chan struct{} // closed when all transports have loaded their plugins
	synced     chan struct{} // closed when every source has reported
}

// New returns a manager of the transports' sources; a resource that several sources claim belongs
// to the first one. Before Run the node has no devices and the inventory is not complete.
func New(nodeName string, transports ...Transport) *Manager {
	return NewLatest(nodeName).Manager(nodeName, transports...)
}

// Manager is New for a manager that writes its inventory here, as the only one.
func (l *Latest) Manager(nodeName string, transports ...Transport) *Manager {
	l.set(&Inventory{Node: types.NewNodeInfoWithName(nodeName), transports: transports})
	return &Manager{
		Latest: l, nodeName: nodeName, transports: transports,
		loaded: make(chan struct{}), synced: make(chan struct{}),
	}
}

// Run follows the transports until ctx is done.
func (m *Manager) Run(ctx context.Context) {
	var following sync.WaitGroup
	for _, t := range m.transports {
		following.Go(func() {
			for {
				// Before the refresh, so that a change during it is not missed.
				_, _, changed := t.Sources()
				m.refresh(ctx)
				select {
				case <-changed:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	following.Wait()
}

// refresh replaces the inventory.
func (m *Manager) refresh(ctx context.Context) {
	m.refreshing.Lock()
	defer m.refreshing.Unlock()
	previous, _ := m.Inventory()
	now := merge(m.nodeName, m.transports)
	if !slices.Equal(previous.Conflicts, now.Conflicts) {
		klog.FromContext(ctx).Info("Device plugins claim the same resources", logkey.Conflicts, now.Conflicts)
	}
	m.set(now)
	closeIf(m.loaded, now.loaded)
	closeIf(m.synced, now.synced)
}

// closeIf closes the channel once the condition holds.
func closeIf(channel chan struct{}, condition bool) {
	select {
	case <-channel:
	default:
		if condition {
			close(channel)
		}
	}
}

// Synced returns a channel that is closed when the inventory has the first report of every source,
// except for those that failed to report.
func (m *Manager) Synced() <-chan struct{} { return m.synced }

// Await waits until the late sources of the devices serve, for awaitTimeout at most. The inventory
// shows the outcome.
func (m *Manager) Await(ctx context.Context, from types.ResourceLocation) {
	ctx, cancel := context.WithTimeout(ctx, awaitTimeout)
	defer cancel()
	for {
		inventory, changed := m.Inventory()
		isMissing := func(name types.ResourceName) bool { return inventory.Missing(name) != nil }
		if !slices.ContainsFunc(slices.Collect(maps.Values(from)), isMissing) {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// Allocate returns what the sources of the container's devices say that it needs, in the order of
// the sources. It is an error if a device has none by now.
func (m *Manager) Allocate(ctx context.Context, claim Claim) ([]inject.Addition, error) {
	inventory, _ := m.Inventory()
	for _, name := range slices.Sorted(maps.Values(claim.Container.AllocateFrom)) {
		if inventory.owners[name] == nil {
			return nil, fmt.Errorf("device resource %s of container %q is gone: no device plugin reports it any more",
				name, claim.ContainerName)
		}
	}
	var additions []inject.Addition
	for _, member := range inventory.membersOf(claim.Container.AllocateFrom) {
		addition, err := member.source.Allocate(ctx, claim)
		if err != nil {
			return nil, err
		}
		additions = append(additions, addition)
	}
	return additions, nil
}

// Loaded returns a channel that is closed when the plugins are loaded, as far as they can be. They
// need not be healthy.
func (m *Manager) Loaded() <-chan struct{} { return m.loaded }

// Firewalls returns, by the plugin's label, how containers could help themselves to the devices of
// plugins that say so, for a container that holds the devices in from, or none. complete says that
// there is no plugin that could not be loaded.
func (m *Manager) Firewalls(from types.ResourceLocation) (all map[string]device.Firewall, complete bool) {
	inventory, _ := m.Inventory()
	held := inventory.membersOf(from)
	all, complete = map[string]device.Firewall{}, inventory.loaded
	for _, member := range inventory.members {
		if _, failed := member.source.(unusableSource); failed {
			complete = false
			continue
		}
		said := member.source.Firewall(slices.Contains(held, member))
		if !isEmpty(said) {
			all[member.source.Label()] = said
		}
	}
	return all, complete
}

// errLoading is the state before plugins are loaded, which takes seconds.
var errLoading = errors.New("device plugins are being loaded")

// Check returns an error that names each source that is not healthy, or whose devices do not count.
func (m *Manager) Check() error {
	inventory, _ := m.Inventory()
	if !inventory.loaded {
		return errLoading
	}
	var errs []error
	for _, member := range inventory.members {
		errs = append(errs, member.state.Err, member.state.ErrWithheld(), member.refused)
	}
	return errors.Join(errs...)
}

// Remarks says what is odd about sources and costs nothing, one after the other; usually nothing.
func (m *Manager) Remarks() string {
	inventory, _ := m.Inventory()
	var texts []string
	for _, member := range inventory.members {
		if member.state.Remark != nil {
			texts = append(texts, strings.ReplaceAll(member.state.Remark.Error(), "\n", "; "))
		}
	}
	return strings.Join(texts, "; ")
}
