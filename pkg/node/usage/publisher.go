// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
)

// minPublication is the shortest time between two publications: each is a write of the node's
// object in the API server, which all who watch nodes get. notable is the part of a device's memory
// below which a change alone is not worth one.
const (
	minPublication = time.Minute
	notable        = 64
)

// Publisher chooses which readings the node publishes: not more than one a minute, if it differs
// notably from the one before, and one each deviceinfo.UsageRefresh. All methods are safe for
// concurrent use.
type Publisher struct {
	reader *Reader

	mu        sync.Mutex
	published *deviceinfo.Usage // nil before the first
	changed   chan struct{}     // closed and replaced when published is
}

// NewPublisher returns the publisher of a reader's readings; call Run.
func NewPublisher(reader *Reader) *Publisher {
	return &Publisher{reader: reader, changed: make(chan struct{})}
}

// Usage returns what to publish, nil before the first reading and with the zero time for nothing,
// and a channel that is closed when that is no longer so. It must not be changed.
func (p *Publisher) Usage() (usage *deviceinfo.Usage, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.published, p.changed
}

// Run follows the readings until ctx is done.
func (p *Publisher) Run(ctx context.Context) {
	for {
		latest, changed := p.reader.Latest()
		switch published, _ := p.Usage(); {
		case latest.Reports && (len(latest.Devices) > 0 || published != nil):
			p.consider(publication(latest))
		case !latest.Time.IsZero() && published == nil:
			p.consider(&deviceinfo.Usage{}) // takes away what an earlier one, or a forger, has left
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// consider publishes a reading if it is worth that.
func (p *Publisher) consider(now *deviceinfo.Usage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.published != nil {
		age := now.Time.Sub(p.published.Time)
		if age < minPublication || age < deviceinfo.UsageRefresh && !notably(p.published.Devices, now.Devices) {
			return
		}
	}
	p.published = now
	close(p.changed)
	p.changed = make(chan struct{})
}

// publication returns what a node publishes of a reading.
func publication(latest *Snapshot) *deviceinfo.Usage {
	usage := &deviceinfo.Usage{Time: latest.Time, Devices: map[string]deviceinfo.DeviceUsage{}}
	for _, d := range latest.Devices {
		deviceUsage := deviceinfo.DeviceUsage{MemoryTotal: d.MemoryTotal, MemoryUsed: d.MemoryUsed,
			Unowned: d.Unowned.Memory}
		for _, c := range d.Containers {
			deviceUsage.Containers = append(deviceUsage.Containers, deviceinfo.ContainerUsage{
				PodUID: c.PodUID, Container: c.Name, MemoryUsed: c.Memory,
			})
		}
		usage.Devices[deviceinfo.DevicePath(d.Name)] = deviceUsage
	}
	return usage
}

// notably reports whether usage has changed so much that it is worth a publication.
func notably(before, now map[string]deviceinfo.DeviceUsage) bool {
	return !maps.EqualFunc(before, now, func(a, b deviceinfo.DeviceUsage) bool {
		total, _ := b.MemoryTotal.Value()
		near := func(a, b device.Reading) bool {
			before, knew := a.Value()
			after, knows := b.Value()
			return knew == knows && max(before-after, after-before) <= total/notable
		}
		return a.MemoryTotal == b.MemoryTotal && near(a.MemoryUsed, b.MemoryUsed) && near(a.Unowned, b.Unowned) &&
			slices.EqualFunc(a.Containers, b.Containers, func(a, b deviceinfo.ContainerUsage) bool {
				return a.PodUID == b.PodUID && a.Container == b.Container && near(a.MemoryUsed, b.MemoryUsed)
			})
	})
}
