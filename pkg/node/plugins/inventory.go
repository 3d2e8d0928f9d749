// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// enumScorer is the scorer that makes any resource a bit mask, under any name; see
// types.ResourceScorer.
const enumScorer = 2

// Inventory is what all sources together have at one time. It is never changed once it is made.
type Inventory struct {
	// Node is the sum. Every extended resource, that is every name in KubeCap, is in Capacity and
	// Allocatable too.
	Node *types.NodeInfo
	// Complete says that every source has reported its devices without an error. One whose devices
	// are another's for now has none.
	Complete bool
	// Conflicts describe the resources that more than one source claims. The first source keeps
	// them.
	Conflicts []string
	// Contested are the extended resources that a source does not offer, because another one or the
	// kubelet has them, too; each with the reason.
	Contested map[types.ResourceName]error
	// Attributes are those of devices in Node, by device as in device.Health.
	Attributes map[string]device.Attributes

	loaded     bool // all transports have loaded their plugins
	synced     bool // and every source has reported
	transports []Transport
	members    []*member
	owners     map[types.ResourceName]*member
	health     map[string]Health // of devices that are unhealthy, or were; by device
	flaps      map[string]Health // how devices flap that are listed no more; see Damper
}

// member is a source as the inventory has it.
type member struct {
	transport Transport
	source    Source
	state     State
	refused   error // why none of its devices counts, or nil
}

// merge adds up what the transports' sources have.
func merge(nodeName string, transports []Transport) *Inventory {
	i := &Inventory{
		Node: types.NewNodeInfoWithName(nodeName), Complete: true, loaded: true, synced: true,
		transports: transports, owners: map[types.ResourceName]*member{}, health: map[string]Health{},
		Attributes: map[string]device.Attributes{}, Contested: map[types.ResourceName]error{},
	}
	for _, t := range transports {
		sources, loaded, _ := t.Sources()
		i.loaded = i.loaded && loaded
		for _, s := range sources {
			m := &member{transport: t, source: s, state: s.State()}
			i.members = append(i.members, m)
			i.synced = i.synced && m.state.Reported
			known := m.state.Info != nil || len(m.state.Withheld) > 0
			i.Complete = i.Complete && known && m.state.Err == nil
			maps.Copy(i.Contested, m.state.Withheld)
			if m.state.Info != nil {
				i.add(m)
			}
		}
	}
	for _, m := range i.members {
		if m.state.Info != nil {
			i.diagnose(m)
			i.describe(m)
		}
	}
	i.synced = i.synced && i.loaded
	i.Complete = i.Complete && i.loaded
	return i
}

// add adds the devices of m that no member before it has. Two sources of one extended resource have
// the same devices under different names, as a plugin file and the vendor's device plugin do: then
// none of m's is given out, or a pod might get one that another pod has.
func (i *Inventory) add(m *member) {
	info := m.state.Info
	for _, name := range slices.Sorted(maps.Keys(info.KubeCap)) {
		if owner, taken := i.owners[name]; taken {
			err := fmt.Errorf("%s is claimed by device plugins %q and %q: no device of the second is given out, as "+
				"both may mean the same devices; keep one of the two from this node", name, owner.source.Label(),
				m.source.Label())
			i.Conflicts, m.refused, i.Contested[name] = append(i.Conflicts, err.Error()), err, err
			return
		}
	}
	names := map[types.ResourceName]bool{}
	for _, list := range []types.ResourceList{info.Capacity, info.Allocatable, info.KubeCap, info.KubeAlloc} {
		for name := range list {
			names[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if owner, taken := i.owners[name]; taken {
			i.Conflicts = append(i.Conflicts,
				fmt.Sprintf("%s: claimed by device plugins %q and %q, counted for the first",
					name, owner.source.Label(), m.source.Label()))
			continue
		}
		i.owners[name] = m
		copyEntry(i.Node.Capacity, info.Capacity, name)
		copyEntry(i.Node.Allocatable, info.Allocatable, name)
		copyEntry(i.Node.Used, info.Used, name)
		copyEntry(i.Node.Scorer, info.Scorer, name)
		if capacity, extended := info.KubeCap[name]; extended {
			allocatable, reported := info.KubeAlloc[name]
			if !reported {
				allocatable = capacity
			}
			i.Node.KubeCap[name], i.Node.Capacity[name] = capacity, capacity
			i.Node.KubeAlloc[name], i.Node.Allocatable[name] = allocatable, allocatable
		}
	}
}

func copyEntry[V any, M ~map[types.ResourceName]V](to, from M, name types.ResourceName) {
	if value, ok := from[name]; ok {
		to[name] = value
	}
}

// membersOf returns the owners of the resources, in the order of the inventory.
func (i *Inventory) membersOf(from types.ResourceLocation) []*member {
	owning := map[*member]bool{}
	for _, name := range from {
		owning[i.owners[name]] = true
	}
	var owners []*member
	for _, m := range i.members {
		if owning[m] {
			owners = append(owners, m)
		}
	}
	return owners
}

// Allocatable returns how much of the resource pods may be given, and whether some source has it at
// all.
func (i *Inventory) Allocatable(name types.ResourceName) (quantity int64, known bool) {
	_, known = i.owners[name]
	return i.Node.Allocatable[name], known
}

// Grantable returns how much of the resource all pods together may hold, and whether some source
// has it at all. Any number of pods may hold a bit mask.
func (i *Inventory) Grantable(name types.ResourceName) (quantity int64, known bool) {
	quantity, known = i.Allocatable(name)
	if i.Node.Scorer[name] == enumScorer {
		quantity = math.MaxInt64
	}
	return quantity, known
}

// Serves reports whether one of the resources belongs to the source that publishes the extended
// resource.
func (i *Inventory) Serves(extended types.ResourceName, from types.ResourceLocation) bool {
	publisher, published := i.owners[extended]
	return published && slices.Contains(i.membersOf(from), publisher)
}

// ExtendedResources returns the names of the node's extended resources, sorted.
func (i *Inventory) ExtendedResources() []types.ResourceName {
	return slices.Sorted(maps.Keys(i.Node.KubeCap))
}

// Missing returns why a device cannot be used now although it may be later, since its source may
// come late. It returns nil for all other devices.
func (i *Inventory) Missing(name types.ResourceName) error {
	m, label, late := i.lateSource(name)
	switch {
	case !late || m != nil && m.state.Serving:
		return nil
	case m == nil:
		return fmt.Errorf("no device plugin of %s has registered with kubecri", label)
	}
	return errors.Join(m.state.Err, m.state.ErrWithheld())
}

// Withheld returns why a device cannot be used now although its source is there, since another one
// has claimed it or its resource, too. It returns nil for all other devices.
func (i *Inventory) Withheld(name types.ResourceName) error {
	if h := i.health[path.Dir(string(name))]; h.Reason == ReasonWithheld {
		return errors.New(h.Message)
	}
	if m, _, _ := i.lateSource(name); m != nil {
		return cmp.Or(m.state.ErrWithheld(), m.refused)
	}
	return nil
}

// lateSource returns the source of a device that may come late, by its label, and nil if it is not
// there.
func (i *Inventory) lateSource(name types.ResourceName) (m *member, label string, late bool) {
	owner := i.owners[name]
	for _, t := range i.transports {
		label, late := t.Late(name)
		if !late || owner != nil && owner.transport != t {
			continue
		}
		for _, m := range i.members {
			if m.transport == t && m.source.Label() == label {
				return m, label, true
			}
		}
		return nil, label, true
	}
	return nil, "", false
}

// isLate reports whether the device belongs to a source that may come late.
func (i *Inventory) isLate(name types.ResourceName) bool {
	return slices.ContainsFunc(i.transports, func(t Transport) bool { _, late := t.Late(name); return late })
}
