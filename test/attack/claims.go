// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/dradriver"
)

// claims are attempts to get, by a claim of Dynamic Resource Allocation, a GPU that we allocate: on
// the node is the vendor's driver, too, which knows nothing of us.
func claims() []*Attempt {
	try := func(limit int64) Try {
		return func(ctx context.Context, s *Stage) (got Got, err error) {
			tenant, err := s.tenant(ctx)
			if err != nil {
				return Got{}, err
			}
			stop, err := dradriver.Start(ctx, s.admin, s.node(scheduled), s.driver())
			if err != nil {
				return Got{}, err
			}
			defer func() { err = errors.Join(err, stop(context.WithoutCancel(ctx))) }()
			claim := s.driver().Claim(s.namespace, "gpu")
			if _, err := tenant.ResourceV1().ResourceClaims(s.namespace).Create(ctx, claim,
				metav1.CreateOptions{}); err != nil {
				return Got{}, err
			}
			pod := clustertest.On(s.node(scheduled).Name, s.pod("greedy", limit))
			dradriver.Use(pod, claim.Name)
			return s.runs(ctx, tenant, pod)
		}
	}
	attempt := func(id, what string, limit int64) *Attempt {
		return &Attempt{
			ID: id, Who: Tenant, What: what, Defence: Firewall, Try: try(limit),
			Want: everywhere(RefusedByNode, "the CDI device nvidia.com/gpu="+id+" from the kubelet asks for devices"),
			Off:  Off{How: "the device firewall is off"},
		}
	}
	return []*Attempt{
		attempt("claim", "claims a GPU that KubeDevice allocates, from the vendor's DRA driver", 0),
		attempt("claim-beside", "claims one in addition to a GPU that it was allocated", 1),
	}
}

// driver returns the attempt's DRA driver, whose device is a GPU that we allocate.
func (s *Stage) driver() dradriver.Driver {
	return dradriver.Driver{Name: s.attempt.ID + ".attack.example", Kind: "nvidia.com/gpu", Device: s.attempt.ID}
}
