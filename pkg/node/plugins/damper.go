// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"maps"
	"path"
	"sync"
	"time"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

const (
	// settleTime is how long a device must be unhealthy without a break to count as failed: less
	// costs no pod, however often.
	settleTime = 3 * time.Second
	// firstHold is how long a device must be healthy to be offered again. It doubles with each
	// relapse, up to lastHold.
	firstHold, lastHold = 5 * time.Second, 2 * time.Minute
	// relapseTime is how long after a recovery another failure is a relapse.
	relapseTime = 5 * time.Minute
)

// Reporter has an inventory that follows its sources at once. *Manager is one.
type Reporter interface {
	Inventory() (now *Inventory, changed <-chan struct{})
	Synced() <-chan struct{}
}

// Damper has the inventory for what must not follow each flap of a device's health: what the node
// publishes, and what follows for pods. A device that becomes unhealthy is so at once. It is
// healthy again when it was for a while, which is longer the more often it fell back. Until a
// failure has lasted, and while the device recovers, its Health is Flapping.
//
// A plugin that is gone and comes back, and a device that is listed again, are no flap the first
// time: a restart costs no time.
//
// All methods are safe for concurrent use.
type Damper struct {
	reporter Reporter
	synced   chan struct{} // closed when the inventory has the first report of every source

	mu      sync.Mutex
	now     *Inventory // nil before the first update
	changed chan struct{}

	// Only Run uses these:
	devices map[string]*dampedHealth      // that are unhealthy, or were
	listed  map[string]types.ResourceName // that the inventory had the last time, and a name of each
}

// dampedHealth is what a damper knows of a device.
//
//	            unhealthy                    healthy              for its hold
//	(healthy) ────────────► failing ◄──────────────────► recovering ────────────► recovered
//	                           ▲          unhealthy                                   │
//	                           └──────────────────────────────────────────────────────┘
//	                                        unhealthy, within relapseTime
type dampedHealth struct {
	phase    dampedPhase
	shown    Health    // as which it is shown, while it is failing or recovering
	began    time.Time // of being unhealthy without a break
	changed  time.Time // of the phase
	lasted   bool      // it was unhealthy for settleTime since began
	relapses int
}

type dampedPhase int

const (
	failing dampedPhase = iota
	recovering
	recovered
)

// NewDamper returns a damper of the inventory; call Run. Before, it has the inventory as it is.
func NewDamper(reporter Reporter) *Damper {
	return &Damper{
		reporter: reporter, synced: make(chan struct{}), changed: make(chan struct{}),
		devices: map[string]*dampedHealth{},
	}
}

// Synced returns a channel that is closed when the damper's own inventory has the first report of
// every source. The reporter's may be closed before: who then read this inventory would find the
// previous one, which may be empty.
func (d *Damper) Synced() <-chan struct{} { return d.synced }

// Inventory returns what the node has for those who must not follow each flap, and a channel that
// is closed when that is no longer so.
func (d *Damper) Inventory() (now *Inventory, changed <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.now == nil {
		now, _ = d.reporter.Inventory()
		return now, d.changed
	}
	return d.now, d.changed
}

// Run follows the reporter until ctx is done.
func (d *Damper) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	reporterSynced := d.reporter.Synced()
	for {
		isSynced := false
		select {
		case <-reporterSynced: // before the inventory is read
			isSynced = true
		default:
		}
		inventory, changed := d.reporter.Inventory()
		now := time.Now()
		damped, next := d.damp(now, inventory)
		d.mu.Lock()
		d.now = damped
		close(d.changed)
		d.changed = make(chan struct{})
		d.mu.Unlock()
		var syncing <-chan struct{}
		if isSynced {
			closeIf(d.synced, true)
		} else {
			syncing = reporterSynced
		}
		timer.Stop()
		if !next.IsZero() {
			timer.Reset(next.Sub(now))
		}
		select {
		case <-changed:
		case <-syncing:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// damp returns the damped inventory, and when it will be another one by itself, or the zero time.
func (d *Damper) damp(now time.Time, inventory *Inventory) (damped *Inventory, next time.Time) {
	until := func(at time.Time) {
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	for device, h := range inventory.health {
		if h.Healthy {
			continue
		}
		s := d.devices[device]
		if s == nil {
			s = &dampedHealth{phase: recovered}
			d.devices[device] = s
		}
		s.fail(now, h)
		if !s.lasted {
			until(s.began.Add(settleTime))
		}
		if s.shown != h {
			until(s.changed.Add(firstHold)) // another reason, which is shown then if it is still so
		}
	}
	d.noteGone(now, inventory)
	for device, s := range d.devices {
		if h, listed := inventory.health[device]; listed && !h.Healthy {
			continue
		}
		at := s.began.Add(relapseTime)
		if _, listed := d.listed[device]; listed || s.phase != failing {
			at = s.recover(now)
		} else if s.lasted = now.Sub(s.began) >= settleTime; !s.lasted {
			at = s.began.Add(settleTime)
		}
		if at.After(now) {
			until(at)
		} else {
			delete(d.devices, device)
		}
	}
	return d.show(inventory), next
}

// noteGone records which devices are listed no more: they are unhealthy, as far as flaps matter.
func (d *Damper) noteGone(now time.Time, inventory *Inventory) {
	listed := make(map[string]types.ResourceName, len(inventory.owners))
	for name := range inventory.owners {
		if _, has := inventory.Node.Capacity[name]; has && resource.IsGroupResourceName(name) {
			listed[path.Dir(string(name))] = name
		}
	}
	for id, name := range d.listed {
		if _, still := listed[id]; still {
			continue
		}
		if d.devices[id] == nil {
			d.devices[id] = &dampedHealth{phase: recovered}
		}
		d.devices[id].fail(now, Health{Health: device.Health{Device: id, Reason: ReasonGone}, Name: name})
	}
	d.listed = listed
}

// fail records that the device is unhealthy.
func (s *dampedHealth) fail(now time.Time, h Health) {
	switch s.phase {
	case recovered:
		if !s.changed.IsZero() {
			s.relapses++
		}
		s.phase, s.shown, s.began, s.changed, s.lasted = failing, h, now, now, false
	case recovering:
		s.relapses++
		s.phase, s.began, s.lasted = failing, now, false
		if now.Sub(s.changed) >= firstHold {
			s.shown, s.changed = h, now // the reason may be another one, but not each time
		}
	case failing:
		if s.relapses == 0 || now.Sub(s.changed) >= firstHold {
			s.shown, s.changed = h, now
		}
	}
	s.lasted = s.lasted || now.Sub(s.began) >= settleTime
}

// recover records that the device is healthy, and returns when it will be another phase by itself,
// or a time that is past if nothing need be known of it any more.
func (s *dampedHealth) recover(now time.Time) (next time.Time) {
	if s.phase == failing {
		s.phase, s.changed = recovering, now
	}
	if s.phase == recovering {
		if next := s.changed.Add(s.holdTime()); now.Before(next) {
			return next
		}
		s.phase, s.changed = recovered, now
	}
	return s.changed.Add(relapseTime)
}

// holdTime is how long the device must be healthy to be offered again.
func (s *dampedHealth) holdTime() time.Duration {
	if s.relapses == 0 && (s.shown.Reason == ReasonPluginGone || s.shown.Reason == ReasonGone) {
		return 0
	}
	return min(firstHold<<min(s.relapses, 10), lastHold)
}

// show returns the inventory with the devices that flap as they are to be shown.
func (d *Damper) show(inventory *Inventory) *Inventory {
	damped := *inventory
	var health map[string]Health
	held := map[string]*dampedHealth{}
	damped.flaps = map[string]Health{}
	for device, s := range d.devices {
		shown := s.shown
		shown.Flapping = s.phase == recovering || !s.lasted
		if s.relapses > 0 {
			shown.Relapsed = s.began
		}
		if _, listed := d.listed[device]; !listed {
			damped.flaps[device] = shown
			continue
		}
		if s.phase == recovered || s.phase == failing && shown == inventory.health[device] {
			continue
		}
		if health == nil {
			health = maps.Clone(inventory.health)
		}
		if health == nil {
			health = map[string]Health{}
		}
		health[device] = shown
		if s.phase == recovering {
			held[device] = s
		}
	}
	if health != nil {
		damped.health = health
	}
	if len(held) > 0 {
		damped.Node = inventory.Node.Clone()
		damped.withhold(held)
	}
	return &damped
}

// withhold offers nothing of these devices. Those that their plugin did not list for a while are
// not shown at all. It changes Node.
func (i *Inventory) withhold(held map[string]*dampedHealth) {
	counted := map[string]bool{} // devices that were healthy in the count of their extended resource
	for name := range i.owners {
		device := path.Dir(string(name))
		s := held[device]
		if _, listed := i.Node.Capacity[name]; s == nil || !listed {
			continue
		}
		info, isGone := i.owners[name].state.Info, s.shown.Reason == ReasonGone
		if i.Node.Allocatable[name] > 0 && !counted[device] && len(info.KubeCap) == 1 {
			counted[device] = true
			for extended := range info.KubeCap {
				i.Node.KubeAlloc[extended] = max(i.Node.KubeAlloc[extended]-1, 0)
				i.Node.Allocatable[extended] = i.Node.KubeAlloc[extended]
				if isGone {
					i.Node.KubeCap[extended] = max(i.Node.KubeCap[extended]-1, 0)
					i.Node.Capacity[extended] = i.Node.KubeCap[extended]
				}
			}
		}
		i.Node.Allocatable[name] = 0
		if isGone {
			for _, list := range []types.ResourceList{i.Node.Capacity, i.Node.Allocatable, i.Node.Used} {
				delete(list, name)
			}
			delete(i.Node.Scorer, name)
		}
	}
}
