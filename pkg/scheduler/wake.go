// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

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

	"github.com/kubedevice/kubedevice/pkg/scheduler/nodestate"
)

// waker has pending device pods tried again where no queueing hint does it: after a plugin gave no answer or translates
// requests in another way, after a bound pod's allocation was changed, and after it turned out that devices kept for a
// binding are free.
type waker struct {
	background *background
	clock      clock.Clock
	activate   func(context.Context)

	mu   sync.Mutex
	next time.Time // when it wakes next; zero when nobody has asked for that
}

// in wakes after a pause at the latest. Calls until then are served by the same waking, or by an earlier one: a pod that
// is woken too early asks again.
func (w *waker) in(pause time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := w.clock.Now().Add(pause)
	if !w.next.IsZero() && !at.Before(w.next) {
		return
	}
	w.next = at
	w.background.run(func(ctx context.Context) {
		timer := w.clock.NewTimer(pause)
		defer timer.Stop()
		select {
		case <-timer.C():
			if w.due(at) {
				w.activate(ctx)
			}
		case <-ctx.Done():
		}
	})
}

// due reports whether waking at that time is still asked for.
func (w *waker) due(at time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.next.Equal(at) {
		return false
	}
	w.next = time.Time{}
	return true
}

// activatePending moves all pending device pods to the active queue.
func activatePending(ctx context.Context, queue fwk.PodActivator, lister corelisters.PodLister, nodes *nodestate.Cache) {
	logger := klog.FromContext(ctx)
	pods, err := lister.List(labels.Everything())
	if err != nil {
		logger.Error(err, "Pending pods are not tried again before the next event")
		return
	}
	pending := map[string]*v1.Pod{}
	for _, pod := range pods {
		if pod.Spec.NodeName == "" && nodes.MayHold(pod) {
			pending[string(pod.UID)] = pod
		}
	}
	logger.V(2).Info("Trying pending device pods again", "pods", len(pending))
	queue.Activate(logger, pending)
}
