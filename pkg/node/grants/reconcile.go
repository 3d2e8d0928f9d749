// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"context"
	"fmt"
	"maps"
	"time"

	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/node/failpoint"
)

// reconcileTimeout is how long the runtime may take to list what it has.
const reconcileTimeout = 30 * time.Second

// KeepReconciled compares the checkpoint with the runtime now, every retry until that works, and
// then every interval until ctx is done.
func (c *Checkpoint) KeepReconciled(ctx context.Context, retry, interval time.Duration) {
	for pause := time.Duration(0); ; {
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		pause = interval
		if err := c.Reconcile(ctx); err != nil {
			klog.FromContext(ctx).
				V(2).
				Info("The checkpoint of granted devices was not compared with the runtime", logkey.Reason, err.Error())
			pause = retry
		}
	}
}

// ensureComplete compares the checkpoint with the runtime once after a start.
func (c *Checkpoint) ensureComplete(ctx context.Context) error {
	if c.isComplete() {
		return nil
	}
	err := c.Reconcile(ctx)
	if c.isComplete() {
		return nil // what could not be written is known all the same
	}
	return err
}

func (c *Checkpoint) isComplete() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.complete
}

// Reconcile compares the checkpoint with the runtime: it removes the allocations of pods that are
// gone, and adds what the containers of live pods that are not in it carry, signed by this node,
// and what the [Origin] has. An error may be that of the write; the result counts then too.
func (c *Checkpoint) Reconcile(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reconcileTimeout)
	defer cancel()
	select {
	case c.reconciling <- struct{}{}:
		defer func() { <-c.reconciling }()
	case <-ctx.Done():
		return fmt.Errorf("compare the checkpoint of granted devices with the runtime: %w", context.Cause(ctx))
	}
	if err := c.open(ctx); err != nil {
		return err
	}
	// A pod that is granted something while the runtime lists may be missing in the list.
	before := c.current()
	states, err := c.runtime.Pods(ctx)
	if err != nil {
		return err
	}
	var foreign Foreign
	if c.origin != nil {
		if foreign, err = c.origin.Read(); err != nil {
			return fmt.Errorf("compare the checkpoint of granted devices with the kubelet's: %w", err)
		}
	}
	failpoint.Reach(failpoint.Reconciling)

	c.changing.Lock()
	defer c.changing.Unlock()
	now := c.current()
	next := maps.Clone(now)
	logger := klog.FromContext(ctx)
	for uid, allocation := range before {
		if !states[uid].Live && !c.pods.Active(uid) {
			delete(next, uid)
			logger.V(2).Info("A pod that held devices is gone", logkey.Pod, allocation.Pod(), logkey.PodUID, uid)
		}
	}
	recovered, findings := c.inspect(states, next)
	c.addRecovered(ctx, recovered, states, next, findings)
	if foreign != nil {
		foreign.Merge(ctx, states, next)
	}
	c.report(ctx, findings)
	if !maps.Equal(next, now) || c.IsUnsaved() {
		err = c.replace(next)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// Also if the write failed: the next process learns it from the runtime, as this one did.
	c.set(next, true)
	return err
}
