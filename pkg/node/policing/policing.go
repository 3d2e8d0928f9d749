// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policing acts on containers that use more than their share of a device's memory.
//
// A share is counted, and most drivers do not hold a container to it. So kubecri compares what each
// container really uses (package usage) with its share. Who uses more for longer than a grace
// period gets an event, and then what the pod or the node says: nothing, the end of the container,
// or the eviction of the pod.
//
// Nothing follows from one reading: the grace period begins with the first reading that shows more,
// each reading after it must show more, too, and the one after the event decides. What is not known
// does not count. A container that holds nothing of a device, or all of it, has no share: the
// device firewall keeps the former from it.
package policing

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/node/devicehealth"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
	"github.com/kubedevice/kubedevice/pkg/node/usage"
)

// DefaultGracePeriod is how long a container may use more than its share where nothing else is
// configured.
const DefaultGracePeriod = 30 * time.Second

const (
	// evictionGrace is how long a container may still use more than its share after its pod was
	// evicted: the time that a pod has to end where it says nothing else.
	evictionGrace = corev1.DefaultTerminationGracePeriodSeconds * time.Second
	// maxGap is the longest time between two readings, in intervals: others in a row say nothing of
	// the time in between. A reading that is older is not acted upon.
	maxGap = 3
	// endTimeout is how long the runtime may take to end a container.
	endTimeout = time.Minute
)

// The reasons of events on pods.
const (
	reasonExceeded = "ShareExceeded"        // a container uses more than its share
	reasonRule     = "ShareExceededPolicy"  // what the pod says about it does not count
	reasonEvicted  = "ShareExceededEvicted" // the pod is evicted
	reasonBlocked  = "ShareExceededBlocked" // it cannot be, and its container is ended
	reasonEnded    = "ShareExceededEnded"   // a container is ended
)

// Usage has the latest reading. *usage.Reader implements it.
type Usage interface {
	Latest() (latest *usage.Snapshot, changed <-chan struct{})
}

// Pods knows the pods of this node. *pods.Registry does.
type Pods interface {
	Get(uid string) (pod pods.Pod, known bool)
	Check() error
}

// Ender ends a container of the runtime at once. nrifront.CRI does.
type Ender interface {
	EndContainer(ctx context.Context, id string) error
}

// Evictor evicts pods. devicehealth.Evictor does.
type Evictor interface {
	Evict(ctx context.Context, pod *corev1.ObjectReference, reasons devicehealth.EvictionReasons) (evicted bool)
}

// Events writes events on pods. It must not block.
type Events interface {
	// Warn puts a warning on a pod. The same warning again is counted, not repeated.
	Warn(pod *corev1.ObjectReference, reason, message string)
}

// Metrics counts what is done.
type Metrics interface {
	// ObserveShareExceeded counts something that is done about a container.
	ObserveShareExceeded(action Action)
}

// Action is something that is done about a container that uses more than its share.
type Action string

// The actions.
const (
	ActionWarned  Action = "warned"
	ActionEvicted Action = "evicted"
	ActionEnded   Action = "ended"
	ActionFailed  Action = "failed" // it could not be ended
)

// Actions are all of them.
func Actions() []Action { return []Action{ActionWarned, ActionEvicted, ActionEnded, ActionFailed} }

// Options are what a controller needs.
type Options struct {
	Usage Usage
	// Interval is the time between two readings.
	Interval time.Duration
	Pods     Pods
	// Default is the policy for pods that say nothing, and GracePeriod how long a container may use
	// more than its share; it is not negative.
	Default     Policy
	GracePeriod time.Duration
	Ender       Ender
	Evictor     Evictor
	Events      Events
	Metrics     Metrics
	Clock       clock.PassiveClock
}

// Controller acts on the containers of a node. Run it once.
type Controller struct {
	Options

	running sync.WaitGroup // ends and evictions

	mu      sync.Mutex
	last    time.Time // of the last reading
	watched map[subject]*watched
}

// subject is a container on a device: the runtime's ID, and the device's name.
type subject struct{ id, device string }

// New returns a controller; call Run.
func New(options Options) *Controller {
	return &Controller{Options: options, watched: map[subject]*watched{}}
}

// Run follows the readings until ctx is done.
func (c *Controller) Run(ctx context.Context) {
	defer c.running.Wait()
	for {
		latest, changed := c.Usage.Latest()
		c.review(ctx, latest)
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// State returns where a container, by the runtime's ID, stands with its share of a device.
func (c *Controller) State(id, device string) State {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.watched[subject{id, device}]; w != nil {
		return w.state
	}
	return Within
}

// review acts on a reading.
func (c *Controller) review(ctx context.Context, now *usage.Snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	longest := maxGap * c.Interval
	if now.Time.IsZero() || !now.Time.After(c.last) || c.Clock.Since(now.Time) > longest {
		return
	}
	if now.Time.Sub(c.last) > longest {
		clear(c.watched) // containers that are being ended are found again
	}
	c.last = now.Time
	exceeding := map[subject]bool{}
	for i := range now.Devices {
		device := &now.Devices[i]
		for _, container := range device.Containers {
			if container.ID != "" && hasShare(container, device) && container.Exceeds() > 0 {
				exceeding[subject{container.ID, device.Name}] = true
				c.exceeds(ctx, exceeder{container, device, now.Time})
			}
		}
	}
	for key, w := range c.watched {
		if !exceeding[key] && !w.acting {
			delete(c.watched, key)
		}
	}
}

// hasShare reports whether the container holds a part of the device.
func hasShare(c usage.Container, device *usage.Device) bool {
	return c.Holds && c.Share != device.MemoryTotal
}

// exceeder is a container that uses more than its share of a device, in a reading.
type exceeder struct {
	usage.Container
	device *usage.Device
	at     time.Time
}

// ref returns a reference to the pod.
func (e exceeder) ref() *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: e.Namespace, Name: e.Pod, UID: apitypes.UID(e.PodUID),
	}
}

// exceeds does what follows for a container that uses more than its share. c.mu is held.
func (c *Controller) exceeds(ctx context.Context, e exceeder) {
	key := subject{e.ID, e.device.Name}
	w := c.watched[key]
	if w == nil {
		w = &watched{}
		c.watched[key] = w
	}
	pod, known := c.Pods.Get(e.PodUID)
	if w.acting || w.state != Within && (!known || c.Pods.Check() != nil) {
		return // what the pod says is not known now
	}
	warn, act := w.exceeds(e.at, c.GracePeriod)
	if !warn && !act {
		return
	}
	policy, problem := c.Default.Of(pod)
	if problem != "" && !w.misspelled {
		w.misspelled = true
		c.Events.Warn(e.ref(), reasonRule, problem)
	}
	text := c.text(e, w.since)
	switch {
	case warn:
		c.Metrics.ObserveShareExceeded(ActionWarned)
		c.Events.Warn(e.ref(), reasonExceeded, short(text+follows(policy)+c.neighbours(e, w.since, e.Namespace)))
		klog.FromContext(ctx).Info("A container uses more than its share of a device", logkey.Pod,
			klog.KRef(e.Namespace, e.Pod), logkey.PodUID, e.PodUID, logkey.Container, e.Name, logkey.Problem,
			text+c.neighbours(e, w.since, ""), logkey.NextStep, string(policy))
	case policy == Ignore && w.state == Warned:
	default:
		w.acting = true
		evict := policy == Evict && w.state == Warned && !pod.Failure.Terminating
		c.running.Go(func() { c.act(ctx, e, w, evict, text) })
	}
}

// act evicts the pod of a container, or ends the container.
func (c *Controller) act(ctx context.Context, e exceeder, w *watched, evict bool, why string) {
	next := Ended
	if evict && c.Evictor.Evict(ctx, e.ref(), devicehealth.EvictionReasons{
		Evicted: reasonEvicted, Blocked: reasonBlocked, Why: short(why),
	}) {
		c.Metrics.ObserveShareExceeded(ActionEvicted)
		next = Evicted
	} else {
		limited, cancel := context.WithTimeout(ctx, endTimeout)
		defer cancel()
		if err := c.Ender.EndContainer(limited, e.ID); err != nil {
			next = w.state
			c.Metrics.ObserveShareExceeded(ActionFailed)
			klog.FromContext(ctx).Error(err, "A container that uses more than its share could not be ended; the next "+
				"reading that shows it tries again",
				logkey.Pod, klog.KRef(e.Namespace, e.Pod), logkey.Container, e.Name)
		} else {
			c.Metrics.ObserveShareExceeded(ActionEnded)
			c.Events.Warn(e.ref(), reasonEnded, short("the container is ended: "+why))
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if next == Evicted {
		w.at = e.at
	}
	w.state, w.acting = next, false
}

// what names the device for people.
func (e exceeder) what() string { return kubeletdevice.Text(e.device.Resource) }
