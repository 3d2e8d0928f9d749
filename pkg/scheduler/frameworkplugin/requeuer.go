// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/scheduler/nodestate"
)

// runner runs functions in goroutines of the scheduler's. *background implements it.
type runner interface {
	// Run runs f in a goroutine of its own; f must return when its context ends.
	Run(f func(context.Context))
}

// queue is the scheduler's queue of pods. Pods that are not pending are left alone.
type queue interface {
	// activatePending activates the pending device pods, and those with claims.
	activatePending(ctx context.Context)
	// activate activates a pod.
	activate(ctx context.Context, pod *v1.Pod)
}

// requeuer activates pending device pods where no queueing hint does: after a plugin gave no answer
// or translates requests in another way, after a bound pod's allocation was changed, and when
// devices that were kept for a binding turn out to be free. It does the same for pods with claims,
// where DRA drivers publish devices that KubeDevice has.
type requeuer struct {
	runner runner
	clock  clock.Clock
	queue  queue

	mu   sync.Mutex
	next time.Time // of the next activation; zero when none is scheduled
	last time.Time // when there was one
}

// requeueInterval is between two activations: each has all pending device pods scheduled, past
// their back-off.
const requeueInterval = time.Second

// Requeue implements allocation.Requeuer.
func (r *requeuer) Requeue() { r.activateAfter(0) }

// activateAfter activates the pods after a delay, or earlier, but not within requeueInterval of the
// last time. Calls until then share that activation: a pod that is activated too early is rejected
// again, which calls after again.
func (r *requeuer) activateAfter(delay time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	if pause := r.last.Add(requeueInterval).Sub(now); !r.last.IsZero() && pause > delay {
		delay = pause
	}
	at := now.Add(delay)
	if !r.next.IsZero() && !at.Before(r.next) {
		return
	}
	r.next = at
	r.runner.Run(func(ctx context.Context) {
		timer := r.clock.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C():
			if r.due(at) {
				r.queue.activatePending(ctx)
			}
		case <-ctx.Done():
		}
	})
}

// due reports whether the activation at that time has not been replaced by an earlier one.
func (r *requeuer) due(at time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.next.Equal(at) {
		return false
	}
	r.next, r.last = time.Time{}, r.clock.Now()
	return true
}

// schedulingQueue is the queue of the scheduler.
type schedulingQueue struct {
	activator fwk.PodActivator
	pods      corelisters.PodLister
	nodes     *nodestate.Cache
}

// activate implements queue.
func (q schedulingQueue) activate(ctx context.Context, pod *v1.Pod) {
	q.activator.Activate(klog.FromContext(ctx), map[string]*v1.Pod{string(pod.UID): pod})
}

// activatePending implements queue: it moves all these pods to the active queue.
func (q schedulingQueue) activatePending(ctx context.Context) {
	logger := klog.FromContext(ctx)
	pods, err := q.pods.List(labels.Everything())
	if err != nil {
		logger.Error(err, "Cannot activate pending pods before the next event")
		return
	}
	pending := map[string]*v1.Pod{}
	for _, pod := range pods {
		if pod.Spec.NodeName == "" && (len(pod.Spec.ResourceClaims) > 0 || q.nodes.Requests.MayHold(pod)) {
			pending[string(pod.UID)] = pod
		}
	}
	logger.V(2).Info("Activating pending device pods", logkey.Pods, len(pending))
	q.activator.Activate(logger, pending)
}
