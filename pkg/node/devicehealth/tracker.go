// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package devicehealth follows the health of the node's devices, and does what follows from it for
// the pods that hold them: an event, a condition, and an eviction where pod, namespace or node want
// it. No container is touched here.
package devicehealth

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/plugins"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Devices has the node's inventory. *plugins.Manager does.
type Devices interface {
	Inventory() (now *plugins.Inventory, changed <-chan struct{})
	// Synced returns a channel that is closed when every source has reported.
	Synced() <-chan struct{}
}

// Grants are the node's granted allocations. *grants.Checkpoint has them.
type Grants interface {
	Follow() (list []grants.Allocation, complete bool, changed <-chan struct{})
}

// NodeEvents puts events on the node, of type corev1.EventTypeNormal or corev1.EventTypeWarning. It
// must not block.
type NodeEvents interface {
	// AnnounceHealth reports changes of the health of devices.
	AnnounceHealth(eventType, message string)
	// AnnounceTaints reports changes of the taints of devices.
	AnnounceTaints(eventType, message string)
}

// Tracker knows which devices are unhealthy and since when. That a device is unhealthy counts from
// when it was first published as such, also by an earlier process. All methods are safe for
// concurrent use.
type Tracker struct {
	devices Devices
	grants  Grants
	events  NodeEvents

	mu      sync.Mutex
	seeds   map[string]deviceinfo.UnhealthyDevice // earlier failures, of which nothing is known now; by path
	seeded  chan struct{}                         // closed when seeds are known
	now     *snapshot                             // nil before the first update; never changed
	changed chan struct{}                         // closed and replaced with now
	renewed chan struct{}                         // closed and replaced with what is published of it
}

// snapshot is what a tracker knows at one time.
type snapshot struct {
	inventory *plugins.Inventory
	unhealthy map[string]unhealthy         // by device
	published []deviceinfo.UnhealthyDevice // the same, held devices first
}

// unhealthy is an unhealthy device.
type unhealthy struct {
	plugins.Health
	since     time.Time // in whole seconds
	announced bool      // it was said that the device failed, for this reason
}

// isFailure reports whether the device itself is known to have failed.
func (u unhealthy) isFailure() bool { return u.Reason != plugins.ReasonPluginGone }

// unbroken returns since when it is unhealthy without a break.
func (u unhealthy) unbroken() time.Time {
	if u.Relapsed.After(u.since) {
		return u.Relapsed.UTC().Truncate(time.Second)
	}
	return u.since
}

// published returns the device as the node's annotation has it.
func (u unhealthy) published() deviceinfo.UnhealthyDevice {
	return deviceinfo.UnhealthyDevice{
		Device: deviceinfo.DevicePath(u.Device), Reason: u.Reason, Message: u.Message, Since: u.since,
	}
}

// NewTracker returns a tracker that knows nothing yet; call Run.
func NewTracker(devices Devices, grants Grants, events NodeEvents) *Tracker {
	return &Tracker{
		devices: devices, grants: grants, events: events,
		seeds: map[string]deviceinfo.UnhealthyDevice{}, seeded: make(chan struct{}), changed: make(chan struct{}),
		renewed: make(chan struct{}),
	}
}

// Seed passes the annotation KubeDevice/Unhealthy that the node has. Only the first one
// counts: the later ones are the tracker's own.
func (t *Tracker) Seed(ctx context.Context, annotation string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-t.seeded:
		return
	default:
	}
	list, err := deviceinfo.DecodeUnhealthy(annotation)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot read since when devices are unhealthy")
	}
	for _, d := range list {
		t.seeds[d.Device] = d
	}
	close(t.seeded)
}

// Unhealthy returns the unhealthy devices, those that pods hold first; whether they are known; and
// a channel that is closed when any of this changes. They are not known before the node's
// annotation and the devices are. The list must not be changed.
func (t *Tracker) Unhealthy() (list []deviceinfo.UnhealthyDevice, known bool, changed <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now == nil {
		return nil, false, t.renewed
	}
	return t.now.published, true, t.renewed
}

func (t *Tracker) snapshot() (now *snapshot, changed <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.now, t.changed
}

// Run follows devices and grants until ctx is done.
func (t *Tracker) Run(ctx context.Context) {
	for _, ready := range []<-chan struct{}{t.devices.Synced(), t.seeded} {
		select {
		case <-ready:
		case <-ctx.Done():
			return
		}
	}
	for {
		inventory, inventoryChanged := t.devices.Inventory()
		granted, _, grantsChanged := t.grants.Follow()
		t.update(inventory, granted)
		select {
		case <-inventoryChanged:
		case <-grantsChanged:
		case <-ctx.Done():
			return
		}
	}
}

// update makes a new snapshot, and announces on the node what has changed.
func (t *Tracker) update(inventory *plugins.Inventory, granted []grants.Allocation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := map[string]unhealthy{}
	if t.now != nil {
		before = t.now.unhealthy
	}
	held := heldDevices(inventory, granted)
	next := &snapshot{inventory: inventory, unhealthy: map[string]unhealthy{}}
	all := inventory.Unhealthy()
	for device, name := range held {
		if h, known := inventory.HealthOf(name); known && h.Reason == plugins.ReasonGone {
			h.Device = device
			all = append(all, h)
		}
	}
	var worse []unhealthy
	for _, h := range all {
		u := unhealthy{Health: h, since: t.since(h, before)}
		if was, ok := before[h.Device]; ok && was.isFailure() && !u.isFailure() {
			// Its plugin may come back, and say the same.
			t.seeds[deviceinfo.DevicePath(h.Device)] = was.published()
		}
		seed := t.seeds[deviceinfo.DevicePath(h.Device)]
		was := before[h.Device]
		u.announced = was.Reason == h.Reason && was.announced || seed.Reason == h.Reason
		if u.isFailure() && !u.Flapping && !u.announced {
			worse = append(worse, u)
			u.announced = true
		}
		next.unhealthy[h.Device] = u
	}
	var better []unhealthy
	for device, was := range before {
		if _, still := next.unhealthy[device]; still || !was.isFailure() || !was.announced {
			continue
		}
		if h, known := inventory.HealthOf(was.Name); known && h.Healthy {
			better = append(better, unhealthy{Health: h})
		}
	}
	next.published = publish(next.unhealthy, held)
	t.forgetSeeds(next)
	t.announce(corev1.EventTypeWarning, "unhealthy", worse)
	t.announce(corev1.EventTypeNormal, "healthy again", better)
	if t.now == nil || !slices.Equal(t.now.published, next.published) {
		close(t.renewed)
		t.renewed = make(chan struct{})
	}
	t.now = next
	close(t.changed)
	t.changed = make(chan struct{})
}

// since returns since when a device is unhealthy. That no plugin serves a device is another matter
// than that it failed. The caller holds mu.
func (t *Tracker) since(h plugins.Health, before map[string]unhealthy) time.Time {
	gone := h.Reason == plugins.ReasonPluginGone
	if was, ok := before[h.Device]; ok && was.isFailure() != gone {
		return was.since
	}
	now := time.Now()
	seed, ok := t.seeds[deviceinfo.DevicePath(h.Device)]
	switch {
	case ok && (seed.Reason == plugins.ReasonPluginGone) == gone && !seed.Since.After(now):
		return seed.Since
	case !h.Since.IsZero() && h.Since.Before(now):
		now = h.Since
	}
	return now.UTC().Truncate(time.Second)
}

// forgetSeeds forgets earlier failures of devices of which more is known now.
// The caller holds mu.
func (t *Tracker) forgetSeeds(next *snapshot) {
	if next.inventory.Complete {
		clear(t.seeds)
	}
	if len(t.seeds) == 0 {
		return
	}
	for name := range next.inventory.Node.Capacity {
		device := path.Dir(string(name))
		if u, ill := next.unhealthy[device]; !ill || u.isFailure() {
			delete(t.seeds, deviceinfo.DevicePath(device))
		}
	}
}

// maxNamed is how many devices one event names.
const maxNamed = 8

// announce puts an event on the node for each reason of which there are devices.
func (t *Tracker) announce(eventType, state string, devices []unhealthy) {
	byReason := map[string][]unhealthy{}
	for _, d := range devices {
		byReason[d.Reason] = append(byReason[d.Reason], d)
	}
	for _, reason := range slices.Sorted(maps.Keys(byReason)) {
		list := byReason[reason]
		slices.SortFunc(list, func(a, b unhealthy) int { return cmp.Compare(a.Device, b.Device) })
		var names []string
		for _, d := range list[:min(len(list), maxNamed)] {
			names = append(names, kubeletdevice.Text(d.Name))
		}
		text := strings.Join(names, ", ")
		if more := len(list) - len(names); more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		verb := "is"
		if len(list) > 1 {
			verb = "are"
		}
		t.events.AnnounceHealth(eventType, fmt.Sprintf("%s %s %s%s", text, verb, state, inBrackets(list[0].Health)))
	}
}

// inBrackets returns reason and message, as far as they are known.
func inBrackets(h plugins.Health) string {
	switch {
	case h.Reason == "":
		return ""
	case h.Message == "":
		return " (" + h.Reason + ")"
	}
	return " (" + h.Reason + ": " + h.Message + ")"
}

// currentName returns the name that the inventory has now for a device resource that a pod holds.
func currentName(inventory *plugins.Inventory, name types.ResourceName) types.ResourceName {
	if _, known := inventory.Allocatable(name); known {
		return name
	}
	return grants.CurrentName(maps.Keys(inventory.Node.Capacity), name)
}

// heldDevices returns the devices that pods hold, each with the name of one of its resources.
func heldDevices(inventory *plugins.Inventory, granted []grants.Allocation) map[string]types.ResourceName {
	held := map[string]types.ResourceName{}
	for _, grant := range granted {
		for _, containers := range []map[string]types.ContainerInfo{
			grant.PodInfo.InitContainers, grant.PodInfo.RunningContainers,
		} {
			for _, container := range containers {
				for _, name := range container.AllocateFrom {
					name = currentName(inventory, name)
					device := path.Dir(string(name))
					held[device] = max(held[device], name)
				}
			}
		}
	}
	return held
}

// publish returns the devices as the node's annotation has them, in an order that does not change.
func publish(devices map[string]unhealthy, held map[string]types.ResourceName) []deviceinfo.UnhealthyDevice {
	order := slices.SortedFunc(maps.Keys(devices), func(a, b string) int {
		first := func(device string) int {
			if _, ok := held[device]; ok {
				return 0
			}
			return 1
		}
		return cmp.Or(cmp.Compare(first(a), first(b)), cmp.Compare(a, b))
	})
	list := make([]deviceinfo.UnhealthyDevice, 0, len(order))
	for _, device := range order {
		list = append(list, devices[device].published())
	}
	return list
}
