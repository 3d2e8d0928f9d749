// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"cmp"
	"context"
	"errors"
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

// holdEnrolment writes the lease with a node's token, and finds out whether the agent of another
// node enrols that one: the holder is another node if none is named, and renewed it that long from
// now. The agent's machine only says so.
func holdEnrolment(ctx context.Context, p *trial, arguments struct {
	Holder  string          `json:"holder"`
	Renewed metav1.Duration `json:"renewed"`
	Seconds int32           `json:"seconds"`
}) (Got, error) {
	attacker, err := p.leasesOfAgents(ctx)
	if err != nil {
		return Got{}, err
	}
	lease, err := attacker.CoordinationV1().Leases(p.namespace).Get(ctx, agent.EnrolmentLease, metav1.GetOptions{})
	if err != nil {
		return Got{}, err
	}
	lease.Spec = coordinationv1.LeaseSpec{
		HolderIdentity: ptr.To(cmp.Or(arguments.Holder, p.node(forged).Name)), LeaseDurationSeconds: &arguments.Seconds,
		RenewTime: ptr.To(metav1.NewMicroTime(time.Now().Add(arguments.Renewed.Duration))),
	}
	if _, err := attacker.CoordinationV1().Leases(p.namespace).Update(ctx, lease,
		metav1.UpdateOptions{}); err != nil {
		return Got{}, err
	}
	machine := &enrolledMachine{enrolled: make(chan struct{}, 1)}
	ctx, cancel := context.WithTimeout(ctx, enrolmentTime)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- agent.New(agent.Options{
			Node: p.node(scheduled).Name, Selector: apilabels.SelectorFromSet(apilabels.Set{
				corev1.LabelHostname: p.node(scheduled).Name}),
			Group: "attacked", Namespace: p.namespace, Serial: true, Client: p.admin, Machine: machine,
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
