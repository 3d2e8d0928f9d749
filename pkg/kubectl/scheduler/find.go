// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scheduler queries KubeDevice's scheduler for what only it knows, with the user's own
// credentials. It finds the schedulers by the Leases in which they publish where they answer, and
// sends credentials only to them: see Client.
package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/kubedevice/kubedevice/pkg/kubectl/cluster"
	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
)

// Instance is a scheduler that publishes where it answers.
type Instance struct {
	// Name is that of its Lease.
	Name string
	schedulerapi.Address
	// Renewed is when it last said that it is there, and Expired that it should have done so since.
	Renewed time.Time
	Expired bool
}

// Find returns the schedulers that publish where they answer: the one that leads first, then those
// that stand by, then those that have expired, each in the order of their names. The error says
// which of them cannot be read; it comes with the others.
func Find(ctx context.Context, leases coordinationclient.LeasesGetter, now time.Time) ([]Instance, error) {
	list, err := leases.Leases(schedulerapi.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("find the schedulers: %w",
			cluster.Explain(err, "list", "leases.coordination.k8s.io", schedulerapi.Namespace))
	}
	var found []Instance
	var unreadable []error
	for i := range list.Items {
		lease := &list.Items[i]
		address, published, err := schedulerapi.ReadAddress(lease)
		switch {
		case err != nil:
			unreadable = append(unreadable, err)
		case published:
			instance := Instance{Name: lease.Name, Address: address, Expired: schedulerapi.Expired(lease, now)}
			if lease.Spec.RenewTime != nil {
				instance.Renewed = lease.Spec.RenewTime.Time
			}
			found = append(found, instance)
		}
	}
	slices.SortFunc(found, func(a, b Instance) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(a.Name, b.Name))
	})
	return found, errors.Join(unreadable...)
}

func (i Instance) rank() int {
	switch {
	case i.Expired:
		return 2
	case i.Leads:
		return 0
	default:
		return 1
	}
}

// ErrNone says that no scheduler publishes where it answers.
var ErrNone = fmt.Errorf("no scheduler publishes where it answers: there is no Lease in the namespace %s; is "+
	"the scheduler KubeDevice's, with --devices-secure-port, and is deploy/rbac applied?", schedulerapi.Namespace)
