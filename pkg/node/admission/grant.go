// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"time"

	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
)

// conflictMemory is how long a pod is refused without another decision, as others hold its devices.
// A decision is what finds that they have left: it compares the checkpoint with the runtime, which
// takes 8 ms with 110 pods (BenchmarkRefusedGrant) and the time of the runtime's lists. So a
// refusal is not remembered until the grants change, but for as long as the kubelet takes to try
// the other containers of the pod. It tries the pod again after ten seconds. A refusal before the
// pod's first container is created, by Claims, is not remembered.
const conflictMemory = time.Second

// grant grants the pod the allocation that it claims, unless it was granted one before.
func (a *Admission) grant(ctx context.Context, r *request) error {
	if r.granted != nil {
		return nil
	}
	inventory, _ := a.Devices.Inventory()
	granted, err := a.Grants.Grant(ctx, allocationOf(r), inventory.Grantable)
	var conflict *grants.Conflict
	switch {
	case errors.As(err, &conflict):
		return failedPreconditionUntil(closedAfter(conflictMemory), err)
	case err != nil:
		return unavailable(err)
	}
	r.granted = &granted
	klog.FromContext(ctx).V(2).Info("A pod is granted devices", logkey.Pod, r.objectRef(), logkey.PodUID, r.uid)
	return nil
}

// closedAfter returns a channel that is closed after a time.
func closedAfter(d time.Duration) <-chan struct{} {
	over := make(chan struct{})
	time.AfterFunc(d, func() { close(over) })
	return over
}

// allocationOf returns the verified allocation that the pod claims.
func allocationOf(r *request) grants.Allocation {
	return grants.Allocation{
		PodUID: r.uid, Namespace: r.namespace, Name: r.name, InitOrder: r.spec.InitOrder(), PodInfo: r.claimed,
		Generation: r.generation,
	}
}
