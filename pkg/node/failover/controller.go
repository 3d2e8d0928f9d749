// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package failover replaces unhealthy devices of containers in running pods. It publishes this
// node's requests for other devices, takes the scheduler's verified answers, and ends the
// containers that still use their previous devices. The kubelet starts them again, in the same pod.
//
// The checkpoint of granted devices has all state for a restart: the containers with a pending
// replacement, and the previous devices that containers may still use. The encoded allocation in a
// container's annotation in the runtime identifies its generation.
package failover

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
)

const (
	// retryInterval is the time to the next try of a refused answer: its devices may become usable.
	retryInterval = time.Second
	// checkInterval is the time between two checks of containers that must end.
	checkInterval = 200 * time.Millisecond
)

// The reasons of events on pods.
const (
	reasonReplaced = "DeviceReplaced"
	reasonRefused  = "DeviceReplacementRefused"
)

// Checkpoint has the node's granted allocations. *grants.Checkpoint implements it.
type Checkpoint interface {
	Follow() (list []grants.Allocation, complete bool, changed <-chan struct{})
	EncodePart(granted grants.Allocation, container string) (string, error)
	Refuse(podUID string, generation int64) error
	Release(podUID, container string) error
}

// Pods knows the pods of this node. *pods.Registry implements it.
type Pods interface {
	Get(uid string) (pod pods.Pod, known bool)
	Active(uid string) bool
	Check() error
	Changed() <-chan struct{}
}

// Runtime is the container runtime.
type Runtime interface {
	grants.Runtime
	// Stop ends a container, which has the grace period to end by itself. It returns when the
	// container has ended.
	Stop(ctx context.Context, id string, grace time.Duration) error
}

// Admission takes answers of the scheduler. *admission.Admission implements it.
type Admission interface {
	// Replace takes the next generation of a pod's allocation, if there is one.
	Replace(ctx context.Context, granted grants.Allocation) grants.Answer
}

// Events writes events on pods. It must not block.
type Events interface {
	// Warn writes a warning on a pod.
	Warn(pod *corev1.ObjectReference, reason, message string)
}

// Metrics counts answers.
type Metrics interface {
	// ObserveReplacement is called when containers got other devices (true), and when the node
	// refused an answer (false).
	ObserveReplacement(taken bool)
}

// Options configure a Controller.
type Options struct {
	Checkpoint Checkpoint
	Pods       Pods
	Runtime    Runtime
	Admission  Admission
	Events     Events
	Metrics    Metrics
}

// Controller handles the node's requests for other devices. All methods are safe for concurrent
// use.
type Controller struct {
	Options

	mu      sync.Mutex
	wanted  []deviceinfo.Replacement // immutable
	known   bool
	changed chan struct{} // closed and replaced when wanted or known changes

	// Only Run uses the rest.
	answers map[string]answer            // by pod UID
	pending map[string]grants.Allocation // with pending replacements, by pod UID, before the answer
	stopper *stopper
}

// answer is the last answer for a pod.
type answer struct {
	basis  generation
	seen   int64
	reason string // for refusing it, as in the last event; empty if it was not refused
	next   time.Time
}

// generation identifies the inputs of an answer, except devices and keys.
type generation struct {
	number           int64
	seal, allocation string
}

// New returns a controller without state; call Run.
func New(options Options) *Controller {
	return &Controller{
		Options: options, changed: make(chan struct{}), answers: map[string]answer{},
		pending: map[string]grants.Allocation{}, stopper: newStopper(options),
	}
}

// Wanted returns the pods for which the node requests other devices, whether they are known, and a
// channel that is closed when any of this changes. The caller must not change the list.
func (c *Controller) Wanted() (list []deviceinfo.Replacement, known bool, changed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wanted, c.known, c.changed
}

// Run reconciles on changes of grants, pods and the runtime until ctx is done.
func (c *Controller) Run(ctx context.Context) {
	defer c.stopper.wait()
	for {
		granted, complete, grantsChanged := c.Checkpoint.Follow()
		podsChanged := c.Pods.Changed()
		var delay time.Duration
		if complete && c.Pods.Check() == nil {
			delay = c.reconcile(ctx, granted)
		}
		var wake <-chan time.Time
		stop := func() bool { return false }
		if delay > 0 {
			timer := time.NewTimer(delay)
			wake, stop = timer.C, timer.Stop
		}
		select {
		case <-grantsChanged:
		case <-podsChanged:
		case <-wake:
		case <-ctx.Done():
		}
		stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// reconcile takes answers and ends containers, and returns the delay to the next call, or zero.
func (c *Controller) reconcile(ctx context.Context, granted []grants.Allocation) (delay time.Duration) {
	var wanted []deviceinfo.Replacement
	pending := map[string]bool{}
	for i := range granted {
		uid := granted[i].PodUID
		if len(granted[i].Pending) > 0 && c.Pods.Active(uid) {
			pending[uid] = true
			c.take(ctx, &granted[i])
		}
		c.reportReplaced(&granted[i])
		if !pending[uid] {
			continue
		}
		if delay = retryInterval; len(granted[i].Pending) == 0 {
			continue
		}
		if replacement, ok := c.request(ctx, &granted[i]); ok {
			wanted = append(wanted, replacement)
		}
	}
	maps.DeleteFunc(c.answers, func(uid string, _ answer) bool { return !pending[uid] })
	maps.DeleteFunc(c.pending, func(uid string, _ grants.Allocation) bool { return !pending[uid] })
	c.set(wanted)
	if c.stopper.reconcile(ctx, granted) {
		delay = checkInterval
	}
	return delay
}

// request returns what the node requests for a pod, if it requests anything.
func (c *Controller) request(ctx context.Context, granted *grants.Allocation) (deviceinfo.Replacement, bool) {
	request := deviceinfo.Replacement{UID: apitypes.UID(granted.PodUID), Generation: granted.Generation}
	for _, container := range slices.Sorted(maps.Keys(granted.Pending)) {
		if !granted.Pending[container].Withdrawn {
			request.Containers = append(request.Containers, container)
		}
	}
	if len(request.Containers) == 0 {
		return request, false
	}
	if refused := max(c.answers[granted.PodUID].seen, granted.Refused); refused > granted.Generation {
		if err := c.Checkpoint.Refuse(granted.PodUID, refused); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot request other devices than the refused ones; will retry",
				logkey.Pod, granted.Pod(), logkey.PodUID, granted.PodUID)
			return request, false
		}
		request.Generation, request.Refused = refused, true
	}
	return request, true
}

// take takes the answer for a pod, if there is a usable one.
func (c *Controller) take(ctx context.Context, granted *grants.Allocation) {
	pod, _ := c.Pods.Get(granted.PodUID)
	basis := generation{granted.Generation, pod.Seal, pod.Allocation}
	last := c.answers[granted.PodUID]
	if last.basis == basis && time.Now().Before(last.next) {
		return
	}
	previous := *granted
	result := c.Admission.Replace(ctx, previous)
	next := answer{basis: basis, seen: result.Generation, reason: last.reason, next: time.Now().Add(retryInterval)}
	switch result.State {
	case grants.AnswerAbsent:
	case grants.AnswerUnverified, grants.AnswerRefused:
		if text := result.Reason.Error(); text != last.reason {
			next.reason = text
			c.Metrics.ObserveReplacement(false)
			c.Events.Warn(refOf(&previous, pod), reasonRefused,
				"cannot use the devices that the scheduler allocated: "+text)
		}
	case grants.AnswerTaken:
		next.basis.number = result.Allocation.Generation
		c.pending[granted.PodUID] = previous
		*granted = result.Allocation
	}
	c.answers[granted.PodUID] = next
}

// reportReplaced writes an event on the pod with the devices replaced since the last call. Either
// take or the creation of a container has taken the answer.
func (c *Controller) reportReplaced(now *grants.Allocation) {
	previous, replacing := c.pending[now.PodUID]
	if delete(c.pending, now.PodUID); len(now.Pending) > 0 {
		c.pending[now.PodUID] = *now
	}
	if !replacing || now.Generation <= previous.Generation {
		return
	}
	c.Metrics.ObserveReplacement(true)
	pod, _ := c.Pods.Get(now.PodUID)
	for _, name := range slices.Sorted(maps.Keys(now.PodInfo.RunningContainers)) {
		if text := describeReplaced(&previous, now, name); text != "" {
			c.Events.Warn(refOf(now, pod), reasonReplaced, text)
		}
	}
}

// describeReplaced describes the replaced devices of a container, or returns "".
func describeReplaced(previous, now *grants.Allocation, container string) string {
	devicesOf := func(a *grants.Allocation) map[string]bool {
		devices := map[string]bool{}
		for _, resource := range a.PodInfo.RunningContainers[container].AllocateFrom {
			devices[kubeletdevice.Text(resource)] = true
		}
		return devices
	}
	had, has := devicesOf(previous), devicesOf(now)
	gone := slices.Sorted(maps.Keys(had))
	gone = slices.DeleteFunc(gone, func(device string) bool { return has[device] })
	came := slices.Sorted(maps.Keys(has))
	came = slices.DeleteFunc(came, func(device string) bool { return had[device] })
	if len(came) == 0 {
		return ""
	}
	return fmt.Sprintf("container %q gets %v instead of %v; kubecri ends it and the kubelet starts it again",
		container, came, gone)
}

func refOf(a *grants.Allocation, pod pods.Pod) *corev1.ObjectReference {
	ref := &corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: a.Namespace, Name: a.Name, UID: apitypes.UID(a.PodUID),
	}
	if pod.Name != "" {
		ref.Namespace, ref.Name = pod.Namespace, pod.Name
	}
	return ref
}

func (c *Controller) set(wanted []deviceinfo.Replacement) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known && reflect.DeepEqual(wanted, c.wanted) {
		return
	}
	c.wanted, c.known = wanted, true
	close(c.changed)
	c.changed = make(chan struct{})
}
