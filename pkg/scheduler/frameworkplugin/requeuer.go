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

// requeuer activates pending device pods where no queueing hint does: after a plugin gave no answer
// or translates requests in another way, after a bound pod's allocation was changed, and when
// devices that were kept for a binding turn out to be free.
type requeuer struct {
	run      func(func(context.Context))
	clock    clock.Clock
	activate func(context.Context)

	mu   sync.Mutex
	next time.Time // of the next activation; zero when none is scheduled
	last time.Time // when there was one
}

// requeuePause is between two activations: each has all pending device pods scheduled, past their
// back-off.
const requeuePause = time.Second

// after activates the pods after a delay, or earlier, but not within requeuePause of the last time.
// Calls until then share that activation: a pod that is activated too early is rejected again,
// which calls after again.
func (r *requeuer) after(delay time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	if pause := r.last.Add(requeuePause).Sub(now); !r.last.IsZero() && pause > delay {
		delay = pause
	}
	at := now.Add(delay)
	if !r.next.IsZero() && !at.Before(r.next) {
		return
	}
	r.next = at
	r.run(func(ctx context.Context) {
		timer := r.clock.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C():
			if r.due(at) {
				r.activate(ctx)
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

// activatePending moves all pending device pods to the active queue.
func activatePending(
	ctx context.Context, queue fwk.PodActivator, lister corelisters.PodLister, nodes *nodestate.Cache,
) {
	logger := klog.FromContext(ctx)
	pods, err := lister.List(labels.Everything())
	if err != nil {
		logger.Error(err, "Pending pods are not activated before the next event")
		return
	}
	pending := map[string]*v1.Pod{}
	for _, pod := range pods {
		if pod.Spec.NodeName == "" && nodes.Requests.MayHold(pod) {
			pending[string(pod.UID)] = pod
		}
	}
	logger.V(2).Info("Activating pending device pods", logkey.Pods, len(pending))
	queue.Activate(logger, pending)
}
