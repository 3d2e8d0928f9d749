// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nrifrontend

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/kubedevice/kubedevice/pkg/node/admission"
	"github.com/kubedevice/kubedevice/pkg/node/inject"
	"github.com/kubedevice/kubedevice/pkg/node/plugins"
)

const (
	// callTimeout is how long device plugins may take in all for one container.
	callTimeout = 2 * time.Minute
	// answerTTL is how long an answer waits for its container, whose image may have to be pulled.
	answerTTL = 10 * time.Minute
)

// errHeld is why a container with devices waits after kubecri was registered.
var errHeld = errors.New("containers that were started while kubecri was away are still being inspected; the " +
	"container is tried again")

// Devices calls device plugins without regard to how long the caller can wait: a call goes on when
// the caller gives up, and the next try for the same container has its answer. Each answer is used
// once. All methods are safe for concurrent use.
type Devices struct {
	admission.Devices
	ctx     context.Context // of all calls
	stop    context.CancelFunc
	running sync.WaitGroup

	mu    sync.Mutex
	calls map[containerKey]*call
	held  *waitGate
}

// waitGate is when containers have to wait for devices.
type waitGate struct {
	released chan struct{} // closed when they may get some
	refused  chan struct{} // closed when to wait is of no use
}

func newWaitGate() *waitGate {
	return &waitGate{released: make(chan struct{}), refused: make(chan struct{})}
}

// wait returns when containers may get devices, or an error when ctx is done or waiting is of no
// use.
func (h *waitGate) wait(ctx context.Context) error {
	select {
	case <-h.released:
		return nil
	case <-h.refused:
	case <-ctx.Done():
	}
	select {
	case <-h.released:
		return nil
	default:
		return errHeld
	}
}

type containerKey struct{ podUID, name string }

// call is a call of device plugins for a container.
type call struct {
	claim plugins.Claim
	done  chan struct{} // closed when the rest is set
	ended time.Time
	reply []inject.Addition
	err   error
}

// NewDevices returns Devices that call those. No container gets any before the Frontend has
// inspected what the runtime has. Their goroutines end with Close.
func NewDevices(ctx context.Context, devices admission.Devices) *Devices {
	d := &Devices{Devices: devices, calls: map[containerKey]*call{}, held: newWaitGate()}
	d.ctx, d.stop = context.WithCancel(ctx)
	return d
}

// Close ends all calls and waits for them. Allocate must not be called any more.
func (d *Devices) Close() {
	d.stop()
	d.running.Wait()
}

// Allocate implements admission.Devices.
func (d *Devices) Allocate(ctx context.Context, claim plugins.Claim) ([]inject.Addition, error) {
	d.mu.Lock()
	held := d.held
	d.mu.Unlock()
	if err := held.wait(ctx); err != nil {
		return nil, err
	}
	c := d.start(claim)
	select {
	case <-c.done:
		d.drop(claim, c)
		return c.reply, c.err
	case <-ctx.Done():
		return nil, fmt.Errorf("the device plugins of container %q have not answered yet; they go on, and the "+
			"container is tried again", claim.ContainerName)
	}
}

// start returns the call for the container, and begins one if there is none that fits.
func (d *Devices) start(claim plugins.Claim) *call {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := containerKey{claim.PodUID, claim.ContainerName}
	if c := d.calls[key]; c != nil && c.fits(claim) {
		return c
	}
	c := &call{claim: claim, done: make(chan struct{})}
	d.calls[key] = c
	d.running.Go(func() {
		ctx, cancel := context.WithTimeout(d.ctx, callTimeout)
		defer cancel()
		reply, err := d.Devices.Allocate(ctx, claim)
		d.mu.Lock()
		defer d.mu.Unlock()
		c.reply, c.err, c.ended = reply, err, time.Now()
		close(c.done)
	})
	return c
}

// fits reports whether the call answers the claim. The caller holds the mutex.
func (c *call) fits(claim plugins.Claim) bool {
	return maps.Equal(c.claim.Container.AllocateFrom, claim.Container.AllocateFrom) &&
		(c.ended.IsZero() || time.Since(c.ended) < answerTTL)
}

// drop forgets a call whose answer is used.
func (d *Devices) drop(claim plugins.Claim, c *call) {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := containerKey{claim.PodUID, claim.ContainerName}
	if d.calls[key] == c {
		delete(d.calls, key)
	}
}

// forget forgets the calls for a pod.
func (d *Devices) forget(podUID string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.calls, func(key containerKey, _ *call) bool { return key.podUID == podUID })
}

// keepOnly forgets the calls for all other pods.
func (d *Devices) keepOnly(podUIDs map[string]bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.calls, func(key containerKey, _ *call) bool { return !podUIDs[key.podUID] })
}

// hold lets no container have devices until release is called. From when refuse is called, it does
// not let them wait for that. Both may be called more than once, refuse also after release.
func (d *Devices) hold() (release, refuse func()) {
	held := newWaitGate()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held = held
	return sync.OnceFunc(func() { close(held.released) }), sync.OnceFunc(func() { close(held.refused) })
}
