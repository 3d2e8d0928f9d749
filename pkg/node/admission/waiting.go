// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/kubedevice/kubedevice/pkg/node/grants"
)

// Granted has the allocations that were granted. *grants.Checkpoint does.
type Granted interface {
	Follow() (list []grants.Allocation, complete bool, changed <-chan struct{})
}

// ActivePods knows which pods have not ended. *pods.Registry does.
type ActivePods interface{ Active(uid string) bool }

// Waiting has the pods that were granted nothing, since devices of their allocation are not there
// or must not be used, next to those that were granted theirs, with the containers that were
// refused for the same reason: what follows from the state of a device is for both. All methods are
// safe for concurrent use; those of a nil Waiting note nothing.
type Waiting struct {
	granted Granted
	pods    ActivePods

	mu      sync.Mutex
	waits   map[string]grants.Allocation // of pods that were granted nothing, by the pod's UID
	refused map[string][]string          // containers of pods that were granted theirs, by the pod's UID
	changed chan struct{}                // closed and replaced when Follow may return something else
}

// NewWaiting returns one with the granted allocations alone; call Run.
func NewWaiting(granted Granted, pods ActivePods) *Waiting {
	return &Waiting{
		granted: granted, pods: pods, waits: map[string]grants.Allocation{}, refused: map[string][]string{},
		changed: make(chan struct{}),
	}
}

// Run follows the granted allocations until ctx is done.
func (w *Waiting) Run(ctx context.Context) {
	for {
		_, _, changed := w.granted.Follow()
		w.mu.Lock()
		w.touch()
		w.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// touch wakes those that follow. The caller holds mu.
func (w *Waiting) touch() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// Follow returns the granted allocations, some of which have Waiting, and those of pods that wait,
// which have Waits, sorted by pod; whether the granted ones are known to be all; and a channel that
// is closed when any of this changes.
func (w *Waiting) Follow() (list []grants.Allocation, complete bool, changed <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	list, complete, _ = w.granted.Follow()
	maps.DeleteFunc(w.waits, func(uid string, _ grants.Allocation) bool { return !w.pods.Active(uid) })
	maps.DeleteFunc(w.refused, func(uid string, _ []string) bool { return !w.pods.Active(uid) })
	list = slices.Clone(list)
	for i := range list {
		delete(w.waits, list[i].PodUID)
		list[i].Waiting = w.refused[list[i].PodUID]
	}
	if len(w.waits) > 0 {
		list = slices.AppendSeq(list, maps.Values(w.waits))
		slices.SortFunc(list, func(a, b grants.Allocation) int { return cmp.Compare(a.PodUID, b.PodUID) })
	}
	return list, complete, w.changed
}

// unusable is a refusal as a device of the pod's allocation is not there or must not be used.
type unusable struct{ error }

// Unwrap returns the refusal.
func (u unusable) Unwrap() error { return u.error }

// note notes that the pod, or the container of one that was granted its devices, waits, if that is
// why it is refused.
func (w *Waiting) note(r *request, err error) {
	if w == nil || !errors.As(err, &unusable{}) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.granted != nil {
		if before := w.refused[r.uid]; !slices.Contains(before, r.container) {
			w.refused[r.uid] = append(slices.Clone(before), r.container)
			w.touch()
		}
		return
	}
	if _, known := w.waits[r.uid]; known {
		return
	}
	claim := allocationOf(r)
	claim.PodInfo, claim.Waits = withoutRequests(r.claimed), true
	w.waits[r.uid] = claim
	w.touch()
}

// forget forgets that a container of a pod that was granted its devices was refused: they can be
// used again.
func (w *Waiting) forget(r *request) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.refused[r.uid]
	if i := slices.Index(before, r.container); i >= 0 {
		w.refused[r.uid] = slices.Delete(slices.Clone(before), i, i+1)
		w.touch()
	}
}
