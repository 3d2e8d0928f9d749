// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pods knows the pods of this node and their requests, without a call to the API server
// when the kubelet creates a container.
//
// A watch keeps the registry up to date. A file has its last state, so that a restart of kubecri
// during an outage of the API server blocks no container of a known pod.
package pods

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// ErrUnknown is in Lookup's error for a pod that the registry does not know.
var ErrUnknown = errors.New("the pod is not known to this node yet")

// keepGone is how long a deleted pod stays known: the kubelet may still create its last containers.
const keepGone = 10 * time.Minute

// Registry knows the pods of this node by UID. All methods are safe for concurrent use.
type Registry struct {
	wait    time.Duration
	clock   clock.PassiveClock
	plugins Plugins

	mu        sync.Mutex
	pods      map[string]Pod
	gone      map[string]time.Time        // when pods of the map were deleted
	resources map[types.ResourceName]bool // see DeviceResources; the map is immutable
	allKnown  bool                        // there can be no other device resources
	synced    bool                        // the API server has listed all pods
	changed   chan struct{}               // closed and replaced when anything above changes
	counted   counted
}

// NewRegistry returns an empty registry. Lookup waits for up to wait for a pod that is not known.
func NewRegistry(wait time.Duration) *Registry {
	return &Registry{
		wait: wait, clock: clock.RealClock{}, plugins: noPlugins{},
		pods: map[string]Pod{}, gone: map[string]time.Time{},
		changed: make(chan struct{}), counted: counted{changed: make(chan struct{})},
	}
}

// Lookup returns the data of the pod. It waits for a pod that the registry does not know, as the
// kubelet may see a pod first; the error then wraps ErrUnknown.
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

// Get returns the data of the pod, without waiting.
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

// Current returns the pods that, to the registry's knowledge, the API server has, by UID; whether
// the API server has listed all; and a channel that is closed when any of this changes.
func (r *Registry) Current() (current map[string]Pod, complete bool, changed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	current = maps.Clone(r.pods)
	for uid := range r.gone {
		delete(current, uid)
	}
	return current, r.synced, r.changed
}

// Changed returns a channel that is closed when the registry's data of any pod changes.
func (r *Registry) Changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

// Active reports whether, to the registry's knowledge, the API server has the pod and it has not
// ended.
func (r *Registry) Active(uid string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	pod, known := r.pods[uid]
	_, gone := r.gone[uid]
	return known && !gone && !pod.Ended
}

// Waits reports whether, to the registry's knowledge, a device pod of the node has not ended and
// has no grant yet. The grants do not contain the devices that such a pod will hold.
func (r *Registry) Waits(granted func(uid string) bool) bool {
	resources, all := r.DeviceResources()
	if !all {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid, pod := range r.pods {
		_, gone := r.gone[uid]
		sealed := pod.Seal != "" && pod.Allocation != ""
		if !gone && !pod.Ended && (sealed || pod.RequestsAny(resources)) && !granted(uid) {
			return true
		}
	}
	return false
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

// The watch calls set, remove and keepOnly.
func (r *Registry) set(uid string, pod Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	previous, known := r.pods[uid]
	_, wasGone := r.gone[uid]
	r.pods[uid] = pod
	delete(r.gone, uid)
	if !known || wasGone || !previous.equal(pod) {
		r.notify()
	}
}

// remove marks a pod as deleted, and removes pods that were deleted long ago.
func (r *Registry) remove(uid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.markGone(uid)
	r.notify()
}

// keepOnly marks all pods but those with the UIDs as deleted: the watch has delivered all pods.
func (r *Registry) keepOnly(uids map[string]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid := range r.pods {
		if _, gone := r.gone[uid]; !gone && !uids[uid] {
			r.markGone(uid)
		}
	}
	r.synced = true
	r.notify()
}

func (r *Registry) markGone(uid string) {
	now := r.clock.Now()
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

// notify closes changed. The caller holds mu.
func (r *Registry) notify() {
	close(r.changed)
	r.changed = make(chan struct{})
	r.count()
}
