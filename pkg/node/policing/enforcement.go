// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package policing

import (
	"context"
	"reflect"
	"sync"
	"time"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/usage"
)

// keptFor is how long a device whose use is not known any more still counts as policed: a driver
// that does not answer for a moment changes nothing for the scheduler.
const keptFor = 5 * time.Minute

// Limits knows by which devices' shares containers are limited by a library in them.
// *sharelibrary.Library does.
type Limits interface {
	// Limited returns those devices, as in DeviceTaint, and a channel that is closed when that may
	// have changed.
	Limited() (devices []string, changed <-chan struct{})
}

// Enforcement knows by what a node holds containers to their shares of its devices: it polices
// those whose use it reads, and may have a library. All methods are safe for concurrent use.
type Enforcement struct {
	usage  Usage  // nil where no use is read
	limits Limits // nil where no library is
	policy Policy

	mu      sync.Mutex
	read    map[string]time.Time // when the use of devices was last known, by device as in DeviceTaint
	now     *deviceinfo.ShareEnforcement
	changed chan struct{} // closed and replaced when now is
}

// NewEnforcement returns the enforcement of a node with this policy; call Run. usage is nil where
// no use is read, and limits where there is no library.
func NewEnforcement(usage Usage, limits Limits, policy Policy) *Enforcement {
	return &Enforcement{
		usage: usage, limits: limits, policy: policy, read: map[string]time.Time{}, changed: make(chan struct{}),
	}
}

// ShareEnforcement returns by what the node holds containers to their shares, nil before the first
// reading, and a channel that is closed when that is no longer so. It must not be changed.
func (e *Enforcement) ShareEnforcement() (now *deviceinfo.ShareEnforcement, changed <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.now, e.changed
}

// Run follows the readings and the devices until ctx is done.
func (e *Enforcement) Run(ctx context.Context) {
	for {
		var latest *usage.Snapshot
		var read, devices <-chan struct{} // nil, which is never ready, where there is nothing to follow
		var limited []string
		if e.usage != nil {
			latest, read = e.usage.Latest()
		}
		if e.limits != nil {
			limited, devices = e.limits.Limited()
		}
		if e.usage == nil || !latest.Time.IsZero() {
			e.note(latest, limited)
		}
		select {
		case <-read:
		case <-devices:
		case <-ctx.Done():
			return
		}
	}
}

// note takes over what a reading shows, if there is one, and which devices a library limits.
func (e *Enforcement) note(latest *usage.Snapshot, limited []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	next := &deviceinfo.ShareEnforcement{
		OnShareExceeded: string(e.policy), Devices: map[string][]deviceinfo.Enforcement{},
	}
	if latest != nil {
		e.noteReading(latest)
	}
	for device := range e.read {
		next.Devices[device] = []deviceinfo.Enforcement{deviceinfo.Policed}
	}
	for _, device := range limited {
		next.Devices[device] = append(next.Devices[device], deviceinfo.Library)
	}
	if !reflect.DeepEqual(e.now, next) {
		e.now = next
		close(e.changed)
		e.changed = make(chan struct{})
	}
}

// noteReading notes of which devices the use is known.
func (e *Enforcement) noteReading(latest *usage.Snapshot) {
	for _, d := range latest.Devices {
		if d.Complete {
			e.read[deviceinfo.TaintedDevice(deviceinfo.DevicePath(d.Name))] = latest.Time
		}
	}
	for device, at := range e.read {
		if latest.Time.Sub(at) > keptFor {
			delete(e.read, device)
		}
	}
}
