// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"

	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
)

// grant grants the pod the allocation that it claims, unless it was granted one before.
func (a *Admission) grant(ctx context.Context, r *request) error {
	if r.granted != nil {
		return nil
	}
	inventory, _ := a.Devices.Inventory()
	granted, err := a.Grants.Grant(ctx, grants.Allocation{
		PodUID: r.uid, Namespace: r.namespace, Name: r.name, InitOrder: r.spec.InitOrder(), PodInfo: r.claimed,
		Generation: r.generation,
	}, inventory.Grantable)
	var conflict *grants.Conflict
	switch {
	case errors.As(err, &conflict):
		return never(err)
	case err != nil:
		return later(err)
	}
	r.granted = &granted
	klog.FromContext(ctx).V(2).Info("A pod is granted devices", logkey.Pod, r.ref(), logkey.PodUID, r.uid)
	return nil
}
