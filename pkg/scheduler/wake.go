// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/scheduler/nodestate"
)

// waker has pending device pods tried again where no event of the cluster does it: after a plugin gave no answer, and
// after it turned out that devices kept for a binding are free.
type waker struct {
	background *background
	clock      clock.Clock
	activate   func(context.Context)
	pending    atomic.Bool
}

// in wakes after a pause, or sooner if a call before has asked for that.
func (w *waker) in(pause time.Duration) {
	if !w.pending.CompareAndSwap(false, true) {
		return
	}
	w.background.run(func(ctx context.Context) {
		timer := w.clock.NewTimer(pause)
		defer timer.Stop()
		select {
		case <-timer.C():
			w.pending.Store(false)
			w.activate(ctx)
		case <-ctx.Done():
		}
	})
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
