// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/logkey"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Holdings knows what pods hold.
type Holdings interface {
	// HeldNames returns the resources that pods hold on a node, by the names that these had when
	// they were allocated. Those count that are reserved. It must not wait for the ledger.
	HeldNames(node string) []sdk.ResourceName
}

// Ledger is what is known of the devices that have two names. It is safe for concurrent use.
//
// In a cluster where no device has two, it costs pods without claims nothing but the reading of two
// flags.
type Ledger struct {
	dra      fwk.SharedDRAManager
	holdings Holdings

	stale  atomic.Bool // slices have changed since they were read
	joined atomic.Bool // there is a device of two names

	mu        sync.Mutex
	published published
	nodes     map[string]*node
	ours      sets.Set[structured.DeviceID] // replaced, not changed
	changed   bool                          // something that it was made from may have
}

// New returns a ledger of no nodes. The caller reports changes to it.
func New(dra fwk.SharedDRAManager, holdings Holdings) *Ledger {
	l := &Ledger{dra: dra, holdings: holdings, nodes: map[string]*node{}}
	l.stale.Store(true)
	return l
}

// SlicesChanged says that ResourceSlices have changed.
func (l *Ledger) SlicesChanged() { l.stale.Store(true) }

// Joined reports whether there is a device of two names, as far as it is known without reading.
func (l *Ledger) Joined() bool { return l.joined.Load() }

// Ours returns the published devices that are KubeDevice's, with those of all ResourceSlices that
// there are now. The caller does not change them. Only the scheduling cycle calls it: what pods
// hold of a node's previous inventory is then reserved.
func (l *Ledger) Ours(ctx context.Context) (sets.Set[structured.DeviceID], error) {
	return l.read(ctx, true)
}

// Reader reads a ledger outside of the scheduling cycle.
type Reader struct{ *Ledger }

// Ours is the ledger's Ours.
func (r Reader) Ours(ctx context.Context) (sets.Set[structured.DeviceID], error) {
	return r.read(ctx, false)
}

func (l *Ledger) read(ctx context.Context, inCycle bool) (sets.Set[structured.DeviceID], error) {
	if l == nil {
		return nil, nil // a cluster without dynamic resource allocation
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.readSlices(); err != nil {
		return nil, err
	}
	l.joinAll(ctx, inCycle)
	return l.ours, nil
}

// Claimed returns the devices of a node's inventory that claims have, by the names that
// [deviceinfo.DevicesOf] yields; nil for none. The inventory is about to be that of this version of
// the node: until InUse says that it is, the devices of both count as listed. The caller does not
// change the devices, and comes back when Outdated says so.
func (l *Ledger) Claimed(source *v1.Node) map[string]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stale.Load() {
		// It stays so: all nodes are joined when Outdated or Ours is called.
		if all, err := l.dra.ResourceSlices().ListWithDeviceTaintRules(); err == nil {
			l.changed = l.published.update(all, l) || l.changed
		}
	}
	n := l.nodes[source.Name]
	if n == nil {
		n = &node{unsettled: true}
		l.nodes[source.Name] = n
	}
	n.list(source)
	l.changed = true
	if !l.join(n) {
		n.claimed = nil
		return nil
	}
	n.claimed = n.claimedOf(l)
	l.joined.Store(l.joined.Load() || n.matters())
	return n.claimed
}

// InUse says that a node's inventory is that of this version of the node.
func (l *Ledger) InUse(source *v1.Node) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.nodes[source.Name]
	if n == nil || !n.listOnly(source) {
		return
	}
	l.changed = true
	if len(l.published.places) == 0 {
		return // there is time for all that
	}
	n.join(l.published.at(n.name()), l.published.at(""))
	n.findStrays(l.holdings.HeldNames(n.name()))
	n.claimed = n.stillListed(n.claimed)
}

// Forget drops a node that is deleted.
func (l *Ledger) Forget(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.nodes, name)
	l.changed = true
}

// Outdated returns the nodes for which Claimed would return something else than it did last.
func (l *Ledger) Outdated(ctx context.Context) []string {
	if !l.joined.Load() && !l.stale.Load() {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stale.Load() {
		if err := l.readSlices(); err != nil {
			klog.FromContext(ctx).Error(err, "Devices that DRA drivers have begun to publish are not known yet")
		}
		joined := false
		for _, n := range l.nodes {
			joined = l.join(n) && n.matters() || joined
		}
		l.joined.Store(joined)
	}
	if !l.joined.Load() {
		return nil
	}
	var outdated []string
	known := &once{of: l}
	for name, n := range l.nodes {
		if n.matters() && !maps.Equal(n.claimed, n.claimedOf(known)) {
			outdated = append(outdated, name)
		}
	}
	slices.Sort(outdated)
	return outdated
}

// readSlices brings what is published up to date.
func (l *Ledger) readSlices() error {
	l.stale.Store(false)
	all, err := l.dra.ResourceSlices().ListWithDeviceTaintRules()
	if err != nil {
		l.stale.Store(true)
		return fmt.Errorf("list ResourceSlices: %w", err)
	}
	l.changed = l.published.update(all, l) || l.changed
	return nil
}

// joinAll brings all nodes up to date. In a scheduling cycle it settles what pods hold of previous
// inventories.
func (l *Ledger) joinAll(ctx context.Context, inCycle bool) {
	if !l.changed {
		return
	}
	l.changed = false
	ours, joined := sets.New[structured.DeviceID](), false
	for name, n := range l.nodes {
		before := len(n.twins)
		if !l.join(n) {
			continue
		}
		if n.unsettled || len(n.strays) > 0 {
			n.findStrays(l.holdings.HeldNames(name))
			n.unsettled = n.unsettled && !inCycle
			l.changed = l.changed || n.unsettled || len(n.strays) > 0 // they are found again next time
		}
		if before == 0 && len(n.twins) > 0 {
			klog.FromContext(ctx).Info("DRA drivers publish devices that KubeDevice has: claims do not get them",
				logkey.Node, klog.KRef("", name), logkey.Devices, len(n.twins))
		}
		joined = joined || n.matters()
		for id := range n.twins {
			ours.Insert(id)
		}
	}
	l.ours = ours
	l.joined.Store(joined)
}

// join brings the devices of a node together with those that are published there. It reports
// whether any are.
func (l *Ledger) join(n *node) bool {
	own, shared := l.published.at(n.name()), l.published.at("")
	if own == nil && shared == nil && len(n.claimed) == 0 {
		n.twins, n.own, n.shared = nil, nil, nil
		return false
	}
	n.join(own, shared)
	return true
}

// attempts bounds how often the devices of claims are read: the tracker refuses while they change.
const attempts = 100

// allocated implements allocations.
func (l *Ledger) allocated() sets.Set[structured.DeviceID] {
	for range attempts {
		if state, err := l.dra.ResourceClaims().GatherAllocatedState(); err == nil {
			all := state.AllocatedDevices
			for id := range state.AllocatedSharedDeviceIDs {
				all.Insert(id.GetDeviceID())
			}
			return all
		}
	}
	return nil
}

// once reads the devices of claims when they are needed first, and no second time.
type once struct {
	of    allocations
	read  bool
	known sets.Set[structured.DeviceID]
}

// allocated implements allocations.
func (o *once) allocated() sets.Set[structured.DeviceID] {
	if !o.read {
		o.known, o.read = o.of.allocated(), true
	}
	return o.known
}
