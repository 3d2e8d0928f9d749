// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"cmp"
	"context"
	"errors"
	"math"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apilabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/pkg/node/agent"
	"github.com/kubedevice/kubedevice/pkg/node/enrolment"
	"github.com/kubedevice/kubedevice/test/kube"
)

// leases are attempts of a node to keep the others from being enrolled. Each node of the chart may
// write the lease by which nodes are enrolled one at a time.
func leases() []*Attempt {
	var attempts []*Attempt
	for _, way := range []struct {
		id, what string
		holder   string        // "" for another node
		renewed  time.Duration // from now
		seconds  int32
	}{
		{"lease-years", "holds the lease of enrolment for 68 years and goes away", "", -2 * time.Minute, math.MaxInt32},
		{"lease-future", "says that it will renew it in 200 years", "", 200 * 365 * 24 * time.Hour, 60},
		{"lease-names", "holds it, and renews it, by names of no node", "absent", 0, 60},
	} {
		attempts = append(attempts, &Attempt{
			ID: way.id, Who: Agent, What: way.what, Defence: Bounds,
			Try:  keepsOthersOut(way.holder, way.renewed, way.seconds),
			Want: everywhere(NoEffect, "another node was enrolled"),
			Off:  Off{How: "it holds the lease for a minute, now", Try: keepsOthersOut("", 0, 60)},
		})
	}
	return attempts
}

// enrolmentTime is how long an agent may take to enrol a node that nothing is in the way of.
const enrolmentTime = 5 * time.Second

// agentRules are the rights that the chart gives the service account of its agents.
var agentRules = []rbacv1.PolicyRule{
	{
		APIGroups: []string{coordinationv1.GroupName}, Resources: []string{"leases"},
		ResourceNames: []string{agent.LeaveLease, agent.EnrolmentLease}, Verbs: []string{"get", "list", "watch"},
	},
	{
		APIGroups: []string{coordinationv1.GroupName}, Resources: []string{"leases"}, Verbs: []string{"update"},
		ResourceNames: []string{agent.EnrolmentLease},
	},
}

// leasesOfAgents makes the leases, without a holder, and returns a client with the token of an
// agent on another node.
func (s *Stage) leasesOfAgents(ctx context.Context) (*kube.Client, error) {
	if err := s.makeNamespace(ctx); err != nil {
		return nil, err
	}
	for _, name := range []string{agent.LeaveLease, agent.EnrolmentLease} {
		if _, err := s.admin.CoordinationV1().Leases(s.namespace).Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			return nil, err
		}
	}
	client, err := s.account(ctx, "agent", "", agentRules)
	if err != nil {
		return nil, err
	}
	return client, client.AwaitRights(ctx, authorizationv1.ResourceAttributes{
		Namespace: s.namespace, Verb: "update", Group: coordinationv1.GroupName, Resource: "leases",
		Name: agent.EnrolmentLease,
	})
}

// keepsOthersOut writes the lease with a node's token, and finds out whether the agent of another
// node enrols that one. The agent's machine only says so.
func keepsOthersOut(holder string, renewed time.Duration, seconds int32) Try {
	return func(ctx context.Context, s *Stage) (Got, error) {
		attacker, err := s.leasesOfAgents(ctx)
		if err != nil {
			return Got{}, err
		}
		lease, err := attacker.CoordinationV1().Leases(s.namespace).Get(ctx, agent.EnrolmentLease, metav1.GetOptions{})
		if err != nil {
			return Got{}, err
		}
		lease.Spec = coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To(cmp.Or(holder, s.node(forged).Name)), LeaseDurationSeconds: &seconds,
			RenewTime: ptr.To(metav1.NewMicroTime(time.Now().Add(renewed))),
		}
		if _, err := attacker.CoordinationV1().Leases(s.namespace).Update(ctx, lease,
			metav1.UpdateOptions{}); err != nil {
			return Got{}, err
		}
		machine := &enrolledMachine{enrolled: make(chan struct{}, 1)}
		ctx, cancel := context.WithTimeout(ctx, enrolmentTime)
		defer cancel()
		ended := make(chan error, 1)
		go func() {
			ended <- agent.New(agent.Options{
				Node: s.node(scheduled).Name, Selector: apilabels.SelectorFromSet(apilabels.Set{
					corev1.LabelHostname: s.node(scheduled).Name}),
				Group: "attacked", Namespace: s.namespace, Serial: true, Client: s.admin, Machine: machine,
			}).Run(ctx)
		}()
		got := Got{Succeeds, "no other node was enrolled"}
		select {
		case <-machine.enrolled:
			got = Got{NoEffect, "another node was enrolled"}
			cancel()
		case <-ctx.Done():
		}
		return got, <-ended
	}
}

// enrolledMachine is a machine that notes that it was enrolled.
type enrolledMachine struct{ enrolled chan struct{} }

func (m *enrolledMachine) Install() (bool, error)            { return false, nil }
func (m *enrolledMachine) Settle() error                     { return nil }
func (m *enrolledMachine) Enrolled() (bool, error)           { return false, nil }
func (m *enrolledMachine) Serve(context.Context, bool) error { return nil }
func (m *enrolledMachine) Ended() <-chan struct{}            { return nil }
func (m *enrolledMachine) Clean() error                      { return nil }

func (m *enrolledMachine) Enrol(context.Context) (*enrolment.Report, error) {
	select {
	case m.enrolled <- struct{}{}:
	default:
	}
	return &enrolment.Report{Outcome: enrolment.Done}, nil
}

func (m *enrolledMachine) Leave(context.Context, bool) (*enrolment.Report, error) {
	return nil, errors.New("nothing has the node given back")
}
