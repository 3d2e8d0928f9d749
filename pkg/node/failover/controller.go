// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package failover gives containers of pods that run other devices, where this node has asked the
// scheduler for some because those of before are unhealthy. It publishes what is asked for, takes
// the answers that are verified, and ends the containers that still use the devices of before. The
// kubelet starts them again, in the same pod.
//
// All that it has to know after a restart is in the checkpoint of granted devices: which containers
// other devices are asked for, and what containers may still use of before. The containers
// themselves say by what they carry in the runtime which generation they belong to.
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

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
)

const (
	// takePause is how long an answer that could not be used waits: its devices may become usable.
	takePause = time.Second
	// lookPause is the time between two looks at containers that are to end.
	lookPause = 200 * time.Millisecond
)

// The reasons of events on pods.
const (
	reasonReplaced = "DeviceReplaced"
	reasonRefused  = "DeviceReplacementRefused"
)

// Record are the node's granted allocations. *grants.Checkpoint has them.
type Record interface {
	Follow() (list []grants.Allocation, complete bool, changed <-chan struct{})
	Carry(granted grants.Allocation, container string) (string, error)
	Release(podUID, container string) error
}

// Pods knows the pods of this node. *pods.Registry does.
type Pods interface {
	Get(uid string) (pod pods.Pod, known bool)
	Active(uid string) bool
	Check() error
	Changed() <-chan struct{}
}

// Runtime is the container runtime.
type Runtime interface {
	grants.Runtime
	// Stop ends a container, which may take that long to end by itself. It returns when it has
	// ended.
	Stop(ctx context.Context, id string, grace time.Duration) error
}

// Options are what a Follower works with.
type Options struct {
	Record  Record
	Pods    Pods
	Runtime Runtime
	// Take takes the next generation of a pod's allocation: see admission.Admission.Replace.
	Take func(ctx context.Context, granted grants.Allocation) (now grants.Allocation, seen int64, err error)
	// Warn puts a warning on a pod. It must not block.
	Warn func(pod *corev1.ObjectReference, reason, message string)
	// Observe is called when containers were given other devices (true), and when an answer could
	// not be used.
	Observe func(taken bool)
}

// Follower follows what the node has asked for. All methods are safe for concurrent use.
type Follower struct {
	Options

	mu      sync.Mutex
	wanted  []deviceinfo.Replacement // never changed
	known   bool
	changed chan struct{} // closed and replaced when wanted or known changes

	// Used by Run only.
	answers map[string]answer            // by pod UID
	asked   map[string]grants.Allocation // that were asked for, by pod UID, as they were then
	ending  *ending
}

// answer is the last one for a pod.
type answer struct {
	of   generation
	seen int64
	said string // why it could not be used, as the event said
	next time.Time
}

// generation identifies what an answer depends on, besides devices and keys.
type generation struct {
	number           int64
	seal, allocation string
}

// New returns a follower that knows nothing yet; call Run.
func New(options Options) *Follower {
	return &Follower{
		Options: options, changed: make(chan struct{}), answers: map[string]answer{},
		asked: map[string]grants.Allocation{}, ending: newEnding(options),
	}
}

// Wanted returns the pods for which the node asks for other devices; whether they are known; and a
// channel that is closed when any of this changes. The list must not be changed.
func (f *Follower) Wanted() (list []deviceinfo.Replacement, known bool, changed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.wanted, f.known, f.changed
}

// Run follows grants, pods and the runtime until ctx is done.
func (f *Follower) Run(ctx context.Context) {
	defer f.ending.wait()
	for {
		granted, complete, grantsChanged := f.Record.Follow()
		podsChanged := f.Pods.Changed()
		var pause time.Duration
		if complete && f.Pods.Check() == nil {
			pause = f.round(ctx, granted)
		}
		var wake <-chan time.Time
		stop := func() bool { return false }
		if pause > 0 {
			timer := time.NewTimer(pause)
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

// round does what is to be done now, and returns after how long there is more to do, or zero.
func (f *Follower) round(ctx context.Context, granted []grants.Allocation) (pause time.Duration) {
	var wanted []deviceinfo.Replacement
	asking := map[string]bool{}
	for i := range granted {
		uid := granted[i].PodUID
		if len(granted[i].Asked) > 0 && f.Pods.Active(uid) {
			asking[uid] = true
			f.take(ctx, &granted[i])
		}
		f.tell(&granted[i])
		if !asking[uid] {
			continue
		}
		if pause = takePause; len(granted[i].Asked) == 0 {
			continue
		}
		of := deviceinfo.Replacement{
			UID: apitypes.UID(uid), Generation: f.answers[uid].seen,
			Refused: f.answers[uid].seen > granted[i].Generation,
		}
		for _, container := range slices.Sorted(maps.Keys(granted[i].Asked)) {
			if !granted[i].Asked[container].Withdrawn {
				of.Containers = append(of.Containers, container)
			}
		}
		if len(of.Containers) > 0 {
			wanted = append(wanted, of)
		}
	}
	maps.DeleteFunc(f.answers, func(uid string, _ answer) bool { return !asking[uid] })
	maps.DeleteFunc(f.asked, func(uid string, _ grants.Allocation) bool { return !asking[uid] })
	f.set(wanted)
	if f.ending.round(ctx, granted) {
		pause = lookPause
	}
	return pause
}

// take takes the answer for a pod, if there is one that can be used.
func (f *Follower) take(ctx context.Context, granted *grants.Allocation) {
	pod, _ := f.Pods.Get(granted.PodUID)
	of := generation{granted.Generation, pod.Seal, pod.Allocation}
	last := f.answers[granted.PodUID]
	if last.of == of && time.Now().Before(last.next) {
		return
	}
	before := *granted
	now, seen, err := f.Take(ctx, before)
	next := answer{of: of, seen: seen, said: last.said, next: time.Now().Add(takePause)}
	switch {
	case err != nil:
		if text := err.Error(); text != last.said {
			next.said = text
			f.Observe(false)
			f.Warn(refOf(&before, pod), reasonRefused, "what the scheduler allocated anew cannot be used: "+text)
		}
	case now.Generation > before.Generation:
		next.of.number = now.Generation
		f.asked[granted.PodUID] = before
		*granted = now
	}
	f.answers[granted.PodUID] = next
}

// tell says on the pod which devices were replaced since the last round, whether this took the
// answer or a container's creation did.
func (f *Follower) tell(now *grants.Allocation) {
	before, asked := f.asked[now.PodUID]
	if delete(f.asked, now.PodUID); len(now.Asked) > 0 {
		f.asked[now.PodUID] = *now
	}
	if !asked || now.Generation <= before.Generation {
		return
	}
	f.Observe(true)
	pod, _ := f.Pods.Get(now.PodUID)
	for _, name := range slices.Sorted(maps.Keys(now.PodInfo.RunningContainers)) {
		if text := exchanged(&before, now, name); text != "" {
			f.Warn(refOf(now, pod), reasonReplaced, text)
		}
	}
}

// exchanged says which devices a container is given in the place of which, or nothing.
func exchanged(before, now *grants.Allocation, container string) string {
	of := func(a *grants.Allocation) map[string]bool {
		devices := map[string]bool{}
		for _, from := range a.PodInfo.RunningContainers[container].AllocateFrom {
			devices[kubeletdevice.Text(from)] = true
		}
		return devices
	}
	had, has := of(before), of(now)
	gone := slices.Sorted(maps.Keys(had))
	gone = slices.DeleteFunc(gone, func(device string) bool { return has[device] })
	came := slices.Sorted(maps.Keys(has))
	came = slices.DeleteFunc(came, func(device string) bool { return had[device] })
	if len(came) == 0 {
		return ""
	}
	return fmt.Sprintf("container %q is given %v in the place of %v, and is ended and started again for that",
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

func (f *Follower) set(wanted []deviceinfo.Replacement) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.known && reflect.DeepEqual(wanted, f.wanted) {
		return
	}
	f.wanted, f.known = wanted, true
	close(f.changed)
	f.changed = make(chan struct{})
}
