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
	// renewedLeaseTimeout is how long a node keeps EnrolmentLease that renews it, for each node
	// that waits. It is longer than an enrolment or a leave with all its timeouts, see package
	// enrolment.
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
	return order{isHeld(lease, orderTimeout), lease.Annotations[drainAnnotation] == "true"}, nil
}

// isHeld reports whether a lease is held. It counts for limit at most from when it was renewed, and
// not at all if that is in the future by more: its writer would hold it for so long.
func isHeld(lease *coordinationv1.Lease, limit time.Duration) bool {
	spec := lease.Spec
	if ptr.Deref(spec.HolderIdentity, "") == "" || spec.RenewTime == nil {
		return false
	}
	stated := time.Duration(ptr.Deref(spec.LeaseDurationSeconds, 0)) * time.Second
	since := time.Since(spec.RenewTime.Time)
	return since < min(stated, limit) && since >= -limit
}

// wait is what a node that waits for EnrolmentLease has seen of its holders.
type wait struct {
	holder string                   // when the lease was read last, "" for none that counts
	read   time.Time                // when that was
	had    map[string]time.Duration // how long each holder has had the lease since the wait began
}

// blocked reports whether another node has the lease, and the right to it. Each node may write the
// lease, in any name. So a holder counts that is a node of the cluster, and for renewedLeaseTimeout
// in all while this node waits, also with breaks in which others have the lease.
func (a *Agent) blocked(ctx context.Context, lease *coordinationv1.Lease) (bool, error) {
	holder, now := ptr.Deref(lease.Spec.HolderIdentity, ""), time.Now()
	if last := a.wait.holder; last != "" {
		a.wait.had[last] += now.Sub(a.wait.read)
	}
	a.wait.holder, a.wait.read = "", now
	if holder == a.Node || !isHeld(lease, leaseTimeout) {
		return false, nil
	}
	if _, seen := a.wait.had[holder]; !seen {
		switch _, err := a.Client.CoreV1().Nodes().Get(ctx, holder, metav1.GetOptions{}); {
		case apierrors.IsNotFound(err):
			return false, nil
		case err != nil:
			return false, fmt.Errorf("read node %q, which has the lease %s/%s: %w", holder, a.Namespace, EnrolmentLease,
				err)
		}
		if a.wait.had == nil {
			a.wait.had = map[string]time.Duration{}
		}
		a.wait.had[holder] = 0
	}
	a.wait.holder = holder
	return a.wait.had[holder] < renewedLeaseTimeout, nil
}

// Order holds LeaveLease for as long as limit, or lets it go if limit is 0.
func Order(ctx context.Context, client kubernetes.Interface, namespace string, drain bool, limit time.Duration) error {
	leases := client.CoordinationV1().Leases(namespace)
	lease, err := leases.Get(ctx, LeaveLease, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read lease %s/%s: %w", namespace, LeaveLease, err)
	}
	setHolder(lease, "uninstall", limit)
	delete(lease.Annotations, drainAnnotation)
	if drain {
		metav1.SetMetaDataAnnotation(&lease.ObjectMeta, drainAnnotation, "true")
	}
	_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	return err
}

// setHolder gives a lease to a holder for as long as limit, or to no holder if limit is 0.
func setHolder(lease *coordinationv1.Lease, holder string, limit time.Duration) {
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
				klog.FromContext(ctx).Error(err, "Cannot renew the lease")
			}
		}
	}()
	return func() {
		cancel()
		<-done
		if err := a.take(context.WithoutCancel(ctx), 0); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot release the lease; it will expire")
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
	switch blocked, err := a.blocked(ctx, lease); {
	case err != nil:
		return err
	case blocked:
		return fmt.Errorf("node %q is enrolled or given back at present, and one is at a time: wait for its end, or "+
			"until it has had the lease %s/%s for %v", a.wait.holder, a.Namespace, EnrolmentLease, renewedLeaseTimeout)
	}
	setHolder(lease, a.Node, limit)
	if _, err = leases.Update(ctx, lease, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("take lease %s/%s: %w", a.Namespace, EnrolmentLease, err)
	}
	a.wait = wait{}
	return nil
}
