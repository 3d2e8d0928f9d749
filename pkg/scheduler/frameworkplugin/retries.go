// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

const (
	// retryInterval is the time between two pods that are tried again because nodes were not
	// searched to the end. Pods without devices do not notice such pods, or how many there are.
	retryInterval = time.Second

	// maxRetries is how many pods may wait for that. Others wait for an event, or for upstream,
	// which tries each pod again after five minutes.
	maxRetries = 1 << 12
)

// retries activates pods for which nodes were not searched to the end, one after the other. It is
// safe for concurrent use.
type retries struct {
	runner runner
	clock  clock.Clock
	queue  queue

	mu      sync.Mutex
	order   []types.UID
	pods    map[types.UID]*v1.Pod
	running bool
}

// add has the pod tried again when it is its turn. One that waits already keeps its turn.
func (r *retries) add(pod *v1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pods[pod.UID] != nil || len(r.order) == maxRetries {
		return
	}
	if r.pods == nil {
		r.pods = map[types.UID]*v1.Pod{}
	}
	r.pods[pod.UID] = pod
	r.order = append(r.order, pod.UID)
	if !r.running {
		r.running = true
		r.runner.Run(r.loop)
	}
}

// loop activates one pod after each pause until none waits.
func (r *retries) loop(ctx context.Context) {
	for {
		timer := r.clock.NewTimer(retryInterval)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return
		}
		pod := r.next()
		if pod == nil {
			return
		}
		r.queue.activate(ctx, pod)
	}
}

// next takes the pod whose turn it is, or returns nil when none waits: the loop then ends.
func (r *retries) next() *v1.Pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.order) == 0 {
		r.running = false
		return nil
	}
	pod := r.pods[r.order[0]]
	delete(r.pods, r.order[0])
	r.order = r.order[1:]
	return pod
}
