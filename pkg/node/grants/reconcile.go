// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"context"
	"fmt"
	"maps"
	"time"

	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/node/failpoint"
)

// reconcileLimit is how long the runtime may take to list what it has.
const reconcileLimit = 30 * time.Second

// KeepReconciled compares the record with the runtime now, until that works, and then every interval until ctx is done.
func (r *Record) KeepReconciled(ctx context.Context, retry, interval time.Duration) {
	for pause := time.Duration(0); ; {
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		pause = interval
		if err := r.Reconcile(ctx); err != nil {
			klog.FromContext(ctx).V(2).Info("The record of grants was not compared with the runtime", "reason", err.Error())
			pause = retry
		}
	}
}

// ensureComplete asks the runtime once after a start.
func (r *Record) ensureComplete(ctx context.Context) error {
	if r.isComplete() {
		return nil
	}
	err := r.Reconcile(ctx)
	if r.isComplete() {
		return nil // what could not be written is known all the same
	}
	return err
}

func (r *Record) isComplete() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.complete
}

// Reconcile compares the record with the runtime: it adds what the containers of pods that live were given, and removes what
// pods hold that are gone. Its error may be that this cannot be written; it counts nevertheless.
func (r *Record) Reconcile(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reconcileLimit)
	defer cancel()
	select {
	case r.reconciling <- struct{}{}:
		defer func() { <-r.reconciling }()
	case <-ctx.Done():
		return fmt.Errorf("compare the record of grants with the runtime: %w", context.Cause(ctx))
	}
	if err := r.open(ctx); err != nil {
		return err
	}
	// A pod that is granted something while the runtime lists may be missing in the list.
	before := r.current()
	seen, err := r.runtime.Pods(ctx)
	if err != nil {
		return err
	}
	failpoint.Reach(failpoint.Reconciling)

	r.changing.Lock()
	defer r.changing.Unlock()
	now := r.current()
	next := maps.Clone(now)
	logger := klog.FromContext(ctx)
	for uid, pod := range seen {
		if _, known := next[uid]; !known && pod.Grant != nil && (pod.Live || r.active(uid)) {
			next[uid] = pod.Grant
			logger.Info("A pod holds devices that were not on record", "pod", pod.Grant.Pod(), "podUID", uid)
		}
	}
	for uid, grant := range before {
		if !seen[uid].Live && !r.active(uid) {
			delete(next, uid)
			logger.V(2).Info("A pod that held devices is gone", "pod", grant.Pod(), "podUID", uid)
		}
	}
	if !maps.Equal(next, now) || r.IsUnsaved() {
		err = r.replace(next)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	// Also if it could not be written: the next process hears it from the runtime, as this one did.
	r.grants, r.complete = next, true
	return err
}
