// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
)

// at is a reading of a device with 64 GiB, some time after the first one.
func at(after time.Duration, containers ...Container) *Snapshot {
	d := Device{Name: gpu(0), MemoryTotal: device.Read(64 << 30), Unowned: Consumption{Memory: device.Read(0)}}
	sum := int64(0)
	for _, c := range containers {
		used, _ := c.Memory.Value()
		sum += used
	}
	d.MemoryUsed, d.Containers = device.Read(sum), containers
	return &Snapshot{Time: time.Unix(1e9, 0).Add(after), Reports: true, Devices: []Device{d}}
}

// nothing is a reading without devices.
func nothing(after time.Duration) *Snapshot {
	return &Snapshot{Time: time.Unix(1e9, 0).Add(after), Reports: true}
}

// user is a container that uses some memory.
func user(pod string, bytes device.Reading) Container {
	return Container{Identity: Identity{PodUID: pod, Name: "main"}, Consumption: Consumption{Memory: bytes}}
}

func TestANodePublishesReadingsThatDifferNotably(t *testing.T) {
	p := NewPublisher(newHost(1).reader())
	for _, step := range []struct {
		what      string
		reading   *Snapshot
		published bool
	}{
		{"the first one", at(0, user("a", device.Read(5<<30))), true},
		{"another one too soon", at(50*time.Second, user("a", device.Read(50<<30))), false},
		{"the same one", at(2*time.Minute, user("a", device.Read(5<<30))), false},
		{"one with a little more", at(3*time.Minute, user("a", device.Read(6<<30))), false},
		{"one with more", at(4*time.Minute, user("a", device.Read(7<<30))), true},
		{"one with a container that uses nothing",
			at(5*time.Minute, user("a", device.Read(7<<30)), user("b", device.Read(0))), true},
		{"one of which less is known",
			at(6*time.Minute, user("a", device.Read(7<<30)), user("b", device.Reading{})), true},
		{"one without devices", nothing(7 * time.Minute), true},
		{"the same one again", nothing(16 * time.Minute), false},
		{"one as long after it as may be", nothing(17 * time.Minute), true},
	} {
		_, changed := p.Usage()
		p.consider(publication(step.reading))
		published := false
		select {
		case <-changed:
			published = true
		default:
		}
		if now, _ := p.Usage(); published != step.published || published && !now.Time.Equal(step.reading.Time) {
			t.Errorf("%s: published %v: %+v", step.what, published, now)
		}
	}
}

func TestNothingIsPublishedWherePluginsCannotSay(t *testing.T) {
	h := newHost(1)
	h.reports = false
	r := h.reader()
	p := NewPublisher(r)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { p.Run(ctx) })
	running.Go(func() { r.Run(ctx) })
	_, first := r.Latest()
	_, published := p.Usage()
	<-first
	<-published
	now, published := p.Usage()
	if now == nil || !now.Time.IsZero() || len(now.Devices) > 0 {
		t.Errorf("published is %+v, want that there is nothing", now)
	}
	h.mu.Lock()
	h.reports, h.usage[gpu(0)] = true, uses()
	h.mu.Unlock()
	for done := false; !done; {
		if h.clock.HasWaiters() {
			h.clock.Step(time.Second)
		}
		select {
		case <-published:
			done = true
		case <-time.After(time.Millisecond):
		}
	}
	now, _ = p.Usage()
	if got := now.Devices["gpu/0"]; got.MemoryTotal != device.Read(16<<30) || len(got.Containers) != 0 ||
		deviceinfo.EncodeUsage(*now, deviceinfo.MaxBytes) == "" {
		t.Errorf("published is %+v", now)
	}
	cancel()
	running.Wait()
}
