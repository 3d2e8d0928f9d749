// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

const (
	// LeaveLease is the lease that has all nodes given back while it is held.
	LeaveLease = "kubedevice-leave"
	// EnrolmentLease is held by the node that is being enrolled or given back.
	EnrolmentLease = "kubedevice-enrolment"
	// drainAnnotation of LeaveLease says that pods with devices are to be evicted.
	drainAnnotation = "kubedevice.io/drain"
)

const (
	// leaseTimeout is how long a node keeps EnrolmentLease that does not renew it, not the duration
	// that the lease states: each node may write it, and one that is compromised may state 68
	// years.
	leaseTimeout = time.Minute
	// renewedLeaseTimeout is how long a node keeps EnrolmentLease that renews it. It is longer than
	// an enrolment or a leave with all its timeouts, see package enrolment.
	renewedLeaseTimeout = 30 * time.Minute
	// orderTimeout is how long LeaveLease holds at most that is not renewed.
	orderTimeout = time.Hour
)

// order is what LeaveLease says.
type order struct{ leave, drain bool }

// readOrder reads LeaveLease.
func readOrder(ctx context.Context, client kubernetes.Interface, namespace string) (order, error) {
	lease, err := client.CoordinationV1().Leases(namespace).Get(ctx, LeaveLease, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return order{}, nil // it goes with everything else
	}
	if err != nil {
		return order{}, fmt.Errorf("read lease %s/%s: %w", namespace, LeaveLease, err)
	}
	return order{held(lease, orderTimeout), lease.Annotations[drainAnnotation] == "true"}, nil
}

// held reports whether a lease is held. It counts for limit at most from when it was renewed, and
// not at all if that is in the future by more: its writer would hold it for so long.
func held(lease *coordinationv1.Lease, limit time.Duration) bool {
	spec := lease.Spec
	if ptr.Deref(spec.HolderIdentity, "") == "" || spec.RenewTime == nil {
		return false
	}
	stated := time.Duration(ptr.Deref(spec.LeaseDurationSeconds, 0)) * time.Second
	since := time.Since(spec.RenewTime.Time)
	return since < min(stated, limit) && since >= -limit
}

// turnOf is how long a holder has had EnrolmentLease without a break, as this node has seen it.
type turnOf struct {
	holder string
	since  time.Time
}

// blocked reports whether another node has the lease, and the right to it.
func (a *Agent) blocked(lease *coordinationv1.Lease) bool {
	holder := ptr.Deref(lease.Spec.HolderIdentity, "")
	if holder == a.Node || !held(lease, leaseTimeout) {
		a.other = turnOf{}
		return false
	}
	if a.other.holder != holder {
		a.other = turnOf{holder, time.Now()}
	}
	return time.Since(a.other.since) < renewedLeaseTimeout
}

// Order holds LeaveLease for as long as limit, or lets it go if limit is 0.
func Order(ctx context.Context, client kubernetes.Interface, namespace string, drain bool, limit time.Duration) error {
	leases := client.CoordinationV1().Leases(namespace)
	lease, err := leases.Get(ctx, LeaveLease, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read lease %s/%s: %w", namespace, LeaveLease, err)
	}
	hold(lease, "uninstall", limit)
	delete(lease.Annotations, drainAnnotation)
	if drain {
		metav1.SetMetaDataAnnotation(&lease.ObjectMeta, drainAnnotation, "true")
	}
	_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	return err
}

// hold gives a lease to a holder for as long as limit, or to no holder if limit is 0.
func hold(lease *coordinationv1.Lease, holder string, limit time.Duration) {
	if limit == 0 {
		lease.Spec = coordinationv1.LeaseSpec{}
		return
	}
	lease.Spec.HolderIdentity = &holder
	lease.Spec.RenewTime = ptr.To(metav1.NewMicroTime(time.Now()))
	lease.Spec.LeaseDurationSeconds = ptr.To(int32(limit / time.Second))
}

// waitForSlot waits, where nodes are enrolled one at a time, until this one may be, and keeps it so
// until release is called.
func (a *Agent) waitForSlot(ctx context.Context) (release func(), err error) {
	if !a.Serial {
		return func() {}, nil
	}
	if err := a.take(ctx, leaseTimeout); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(leaseTimeout / 4):
			}
			if err := a.take(ctx, leaseTimeout); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "The lease was not renewed")
			}
		}
	}()
	return func() {
		cancel()
		<-done
		if err := a.take(context.WithoutCancel(ctx), 0); err != nil {
			klog.FromContext(ctx).Error(err, "The lease was not released, and runs out")
		}
	}, nil
}

// take takes or renews EnrolmentLease, or releases it if limit is 0. It is an error if another node
// has it. From one that has it for longer than renewedLeaseTimeout it is taken.
func (a *Agent) take(ctx context.Context, limit time.Duration) error {
	leases := a.Client.CoordinationV1().Leases(a.Namespace)
	lease, err := leases.Get(ctx, EnrolmentLease, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read lease %s/%s: %w", a.Namespace, EnrolmentLease, err)
	}
	if a.blocked(lease) {
		return fmt.Errorf("node %q is enrolled or given back at present, and one is at a time: wait for its end, or "+
			"until it has had the lease %s/%s for %v", a.other.holder, a.Namespace, EnrolmentLease, renewedLeaseTimeout)
	}
	hold(lease, a.Node, limit)
	if _, err = leases.Update(ctx, lease, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("take lease %s/%s: %w", a.Namespace, EnrolmentLease, err)
	}
	return nil
}
