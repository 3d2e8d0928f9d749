// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pods knows the pods of this node and what they ask for, without a call to the API server when a container is
// created.
//
// A watch keeps the registry up to date. What it knew last is kept in a file, so that a restart of kubecri while the API
// server is away blocks no container of a pod that was known before.
package pods

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"
)

// ErrUnknown is wrapped by Lookup's error for a pod that the registry has not heard of.
var ErrUnknown = errors.New("the pod is not known to this node yet")

// keepGone is how long a deleted pod stays known: its last containers may still be on their way.
const keepGone = 10 * time.Minute

// Registry knows the pods of this node by UID. All methods are safe for concurrent use.
type Registry struct {
	wait time.Duration
	now  func() time.Time

	mu        sync.Mutex
	pods      map[string]Pod
	gone      map[string]time.Time // when pods of the map were deleted
	resources map[string]bool      // names of the node's extended resources
	told      bool                 // somebody who knows has told resources
	complete  bool                 // every device plugin has
	synced    bool
	changed   chan struct{} // closed and replaced when anything above changes
	asked     asked
}

// NewRegistry returns an empty registry. Lookup waits for up to wait for a pod that is not known.
func NewRegistry(wait time.Duration) *Registry {
	return &Registry{
		wait: wait, now: time.Now,
		pods: map[string]Pod{}, gone: map[string]time.Time{}, resources: map[string]bool{},
		changed: make(chan struct{}), asked: asked{changed: make(chan struct{})},
	}
}

// Lookup returns what is known of the pod. It waits for a pod that the registry does not know, as the kubelet may hear of a
// pod first; the error then wraps ErrUnknown.
func (r *Registry) Lookup(ctx context.Context, uid string) (Pod, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, r.wait, ErrUnknown)
	defer cancel()
	for {
		pod, known, changed := r.get(uid)
		if known {
			return pod, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return Pod{}, fmt.Errorf("pod with UID %q: %w", uid, context.Cause(ctx))
		}
	}
}

// Get returns what is known of the pod, without waiting.
func (r *Registry) Get(uid string) (Pod, bool) {
	pod, known, _ := r.get(uid)
	return pod, known
}

func (r *Registry) get(uid string) (pod Pod, known bool, changed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pod, known = r.pods[uid]
	return pod, known, r.changed
}

// Active reports whether the API server has the pod and it is not over, as far as the registry knows.
func (r *Registry) Active(uid string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	pod, known := r.pods[uid]
	_, gone := r.gone[uid]
	return known && !gone && !pod.Over
}

// Check returns an error until the API server has listed all pods of the node once.
func (r *Registry) Check() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.synced {
		return errors.New("the API server has not listed the node's pods yet")
	}
	return nil
}

// DeviceResources returns the names of the node's extended resources that device plugins stand behind. They are told if all
// plugins were well at some time, or the node's object was seen; otherwise nobody knows yet whether there are others.
func (r *Registry) DeviceResources() (names map[string]bool, told bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.resources), r.told
}

// SetDeviceResources notes those names as the device plugins tell them. Unless names are complete, the ones that were noted
// before stay: a plugin that does not run must not turn the pods that ask for its devices into pods that ask for none.
func (r *Registry) SetDeviceResources(names []string, complete bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.complete = complete
	before := r.resources
	if complete {
		before = nil
	}
	r.noteResources(before, names, r.told || complete)
}

// NotePublished notes those names as the node's object has them, from an earlier life of this node maybe. They count while
// some plugin is not well.
func (r *Registry) NotePublished(names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.complete {
		r.noteResources(r.resources, names, true)
	}
}

// noteResources makes the resources those of before and names. The caller holds mu.
func (r *Registry) noteResources(before map[string]bool, names []string, told bool) {
	next := map[string]bool{}
	maps.Copy(next, before)
	for _, name := range names {
		next[name] = true
	}
	if told != r.told || !maps.Equal(next, r.resources) {
		r.resources, r.told = next, told
		r.wake()
	}
}

// set notes a pod. The caller of set, remove and keepOnly is the watch.
func (r *Registry) set(uid string, pod Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, known := r.pods[uid]
	_, wasGone := r.gone[uid]
	r.pods[uid] = pod
	delete(r.gone, uid)
	if !known || wasGone || !before.equal(pod) {
		r.wake()
	}
}

// remove notes that a pod was deleted, and forgets those that were long ago.
func (r *Registry) remove(uid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.markGone(uid)
	r.wake()
}

// keepOnly notes that the watch has delivered the pods with these UIDs and there are no others.
func (r *Registry) keepOnly(uids map[string]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid := range r.pods {
		if _, gone := r.gone[uid]; !gone && !uids[uid] {
			r.markGone(uid)
		}
	}
	r.synced = true
	r.wake()
}

func (r *Registry) markGone(uid string) {
	now := r.now()
	if _, known := r.pods[uid]; known {
		r.gone[uid] = now
	}
	for uid, since := range r.gone {
		if now.Sub(since) > keepGone {
			delete(r.pods, uid)
			delete(r.gone, uid)
		}
	}
}

// wake tells who waits that something changed. The caller holds mu.
func (r *Registry) wake() {
	close(r.changed)
	r.changed = make(chan struct{})
	r.count()
}
