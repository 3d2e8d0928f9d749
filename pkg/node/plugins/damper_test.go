// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"path"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// flapping is a node whose only source is a test's, and what its damper shows.
type flapping struct {
	*Damper
	sources *transport
}

// flap runs the test with a damper of a source with the devices a and b.
func flap(t *testing.T, test func(t *testing.T, f flapping)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := flapping{sources: newTransport(serving("x", "a", "b"))}
		manager := New("node-1", f.sources)
		f.Damper = NewDamper(manager)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { manager.Run(ctx) })
		running.Go(func() { f.Run(ctx) })
		defer running.Wait()
		defer cancel()
		synctest.Wait()
		test(t, f)
	})
}

// set has the source list these devices, and waits until the damper knows.
func (f flapping) set(ids ...string) {
	f.sources.set(serving("x", ids...))
	synctest.Wait()
}

// pass lets time pass.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// expect fails the test unless so much of device a is offered, and of all devices.
func (f flapping) expect(t *testing.T, when string, offered, all int64, isFlapping bool) {
	t.Helper()
	now, _ := f.Inventory()
	if got := now.Node.Allocatable[lateName("x", "a")]; got != offered {
		t.Errorf("%s: %d of the device is offered, want %d", when, got, offered)
	}
	if got := now.Node.KubeAlloc["example.com/x"]; got != all {
		t.Errorf("%s: %d devices are counted, want %d", when, got, all)
	}
	h, known := now.HealthOf(lateName("x", "a"))
	if !known || h.Flapping != isFlapping || h.Healthy != (offered > 0) {
		t.Errorf("%s: the device's health is %+v, known: %t", when, h, known)
	}
}

func TestAShortFailureIsShownAtOnceAndIsNoFailure(t *testing.T) {
	flap(t, func(t *testing.T, f flapping) {
		f.expect(t, "at first", 1, 2, false)
		f.set("-a", "b")
		f.expect(t, "when the device fails", 0, 1, true)
		pass(time.Second)
		f.set("a", "b")
		f.expect(t, "when it is healthy again", 0, 1, true)
		pass(firstHold - time.Second)
		f.expect(t, "before it has held", 0, 1, true)
		pass(time.Second)
		f.expect(t, "when it has held", 1, 2, false)
	})
}

func TestAFailureThatLastsIsOne(t *testing.T) {
	flap(t, func(t *testing.T, f flapping) {
		f.set("-a", "b")
		pass(settleTime - time.Millisecond)
		f.expect(t, "before it has lasted", 0, 1, true)
		pass(time.Millisecond)
		f.expect(t, "when it has lasted", 0, 1, false)
		f.set("a", "b")
		f.expect(t, "while it recovers", 0, 1, true)
		f.set("-a", "b")
		f.expect(t, "when it falls back", 0, 1, true)
		f.set("a", "b")
		pass(firstHold)
		f.expect(t, "when it has held as long as the first time", 0, 1, true)
		pass(firstHold)
		f.expect(t, "when it has held twice as long", 1, 2, false)
	})
}

// TestTheReasonOfADeviceThatFlapsIsTheLastOneAfterAWhile flaps with one reason, and stays unhealthy
// with another one that follows too soon to be shown.
func TestTheReasonOfADeviceThatFlapsIsTheLastOneAfterAWhile(t *testing.T) {
	flap(t, func(t *testing.T, f flapping) {
		expect := func(when, reason string) {
			t.Helper()
			now, _ := f.Inventory()
			if h, _ := now.HealthOf(lateName("x", "a")); h.Reason != reason {
				t.Errorf("%s: the device is unhealthy because of %q, want %q", when, h.Reason, reason)
			}
		}
		f.set("-a", "b")
		pass(settleTime)
		f.set("a", "b")
		pass(firstHold)
		f.set("-a", "b")
		first, _ := f.Inventory()
		h, _ := first.HealthOf(lateName("x", "a"))
		pass(time.Second)
		lost := serving("x", "-a", "b")
		id := path.Dir(string(lateName("x", "a")))
		lost.state.Health = map[string]device.Health{id: {Device: id, Reason: "Lost"}}
		f.sources.set(lost)
		synctest.Wait()
		expect("when the reason changes", h.Reason)
		pass(firstHold)
		expect("when it has been another one for a while", "Lost")
	})
}

// changes counts what a reader of the inventory sees change of what is offered.
func (f flapping) changes(t *testing.T, what func()) (count int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var reading sync.WaitGroup
	reading.Go(func() {
		var last *types.NodeInfo
		for {
			now, changed := f.Inventory()
			if last != nil && !equalInfo(last, now.Node) {
				count++
			}
			last = now.Node
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	})
	synctest.Wait()
	what()
	cancel()
	reading.Wait()
	return count
}

func TestADeviceThatFlapsIsOfferedNoMoreAndHasNotFailed(t *testing.T) {
	flap(t, func(t *testing.T, f flapping) {
		changes := f.changes(t, func() {
			for range 30 {
				f.set("-a", "b")
				pass(370 * time.Millisecond)
				f.set("a", "b")
				pass(370 * time.Millisecond)
			}
		})
		if changes != 1 {
			t.Errorf("what is offered changed %d times", changes)
		}
		f.set("-a", "b")
		f.expect(t, "in the end", 0, 1, true)
		f.set("a", "b")
		pass(lastHold)
		f.expect(t, "when it has held", 1, 2, false)
	})
}

// Its recoveries are longer than the first hold.
func TestADeviceThatFlapsSlowlyIsOfferedLessOften(t *testing.T) {
	flap(t, func(t *testing.T, f flapping) {
		changes := f.changes(t, func() {
			for range 30 {
				f.set("-a", "b")
				pass(time.Second)
				f.set("a", "b")
				pass(6 * time.Second)
			}
		})
		if changes > 5 {
			t.Errorf("in 210 s, what is offered changed %d times", changes)
		}
	})
}

func TestAPluginThatRestartsOnceIsNoFlapAndOneThatDoesSoAgainIs(t *testing.T) {
	flap(t, func(t *testing.T, f flapping) {
		left := gone("x", "a", "b")
		left.state.Info.KubeAlloc["example.com/x"] = 0
		leave := func() {
			f.sources.set(left)
			synctest.Wait()
		}
		leave()
		if now, _ := f.Inventory(); now.Node.KubeAlloc["example.com/x"] != 0 {
			t.Error("the devices of a plugin that is gone are offered")
		}
		f.set("a", "b")
		f.expect(t, "when it is back", 1, 2, false)
		changes := f.changes(t, func() {
			for range 20 {
				leave()
				pass(time.Second)
				f.set("a", "b")
				pass(time.Second)
			}
		})
		if changes > 1 {
			t.Errorf("what is offered changed %d times", changes)
		}
	})
}

func TestADeviceThatIsListedNowAndThenIsNotOffered(t *testing.T) {
	flap(t, func(t *testing.T, f flapping) {
		f.set("b")
		if h, known := f.healthOf("a"); !known || h.Reason != ReasonGone || !h.Flapping {
			t.Errorf("right after it was listed: %+v, %t", h, known)
		}
		pass(settleTime)
		if h, known := f.healthOf("a"); !known || h.Reason != ReasonGone || h.Flapping {
			t.Errorf("when that has lasted: %+v, %t", h, known)
		}
		f.set("a", "b")
		f.expect(t, "when it is listed again", 1, 2, false)
		changes := f.changes(t, func() {
			for range 20 {
				f.set("b")
				pass(time.Second)
				f.set("a", "b")
				pass(time.Second)
			}
		})
		if now, _ := f.Inventory(); changes > 1 || now.Node.KubeCap["example.com/x"] != 1 {
			t.Errorf("what is offered changed %d times, in the end to %v", changes, now.Node.KubeCap)
		}
		pass(lastHold)
		f.expect(t, "when it has been listed for long", 1, 2, false)
	})
}

func (f flapping) healthOf(id string) (Health, bool) {
	now, _ := f.Inventory()
	return now.HealthOf(lateName("x", id))
}

func TestADamperForgetsDevices(t *testing.T) {
	flap(t, func(t *testing.T, f flapping) {
		f.set("-a", "b")
		f.set("a")
		pass(2 * relapseTime)
		if len(f.devices) > 0 {
			t.Errorf("it knows of %v still", f.devices)
		}
	})
}

// lateInventory is a Reporter whose inventory changes before it says so.
type lateInventory struct {
	mu     sync.Mutex
	now    *Inventory
	synced chan struct{}
}

func (r *lateInventory) Inventory() (*Inventory, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now, nil
}

func (r *lateInventory) Synced() <-chan struct{} { return r.synced }

// A node that publishes at this time must not withdraw its devices.
func TestADamperIsSyncedWhenItsOwnInventoryIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &lateInventory{now: merge("node-1", nil), synced: make(chan struct{})}
		d := NewDamper(r)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { d.Run(ctx) })
		defer running.Wait()
		defer cancel()
		synctest.Wait()
		r.mu.Lock()
		r.now = merge("node-1", []Transport{newTransport(serving("x", "a"))})
		close(r.synced)
		r.mu.Unlock()
		<-d.Synced()
		if now, _ := d.Inventory(); len(now.Node.Capacity) == 0 {
			t.Error("it is synced, and has no devices")
		}
	})
}
