// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// beAdministrator makes the tenant an administrator.
func beAdministrator(ctx context.Context, p *trial, _ nothing) (Got, error) {
	tenant, err := p.client(ctx)
	if err != nil {
		return Got{}, err
	}
	if err := p.bindEverywhere(ctx, "cluster-admin", p.subjects("tenant")); err != nil {
		return Got{}, err
	}
	return Got{}, tenant.AwaitRights(ctx, anyRight)
}

// makeGhost makes the node of the ghost, and the attempt's namespace.
func makeGhost(ctx context.Context, p *trial, _ nothing) (Got, error) {
	if err := p.makeNamespace(ctx); err != nil {
		return Got{}, err
	}
	return Got{}, p.makeGhost(ctx)
}

// makeGhost makes the node that has a kubelet's credentials and no machine, unless it is there.
func (s *Stage) makeGhost(ctx context.Context) error {
	_, err := s.admin.CoreV1().Nodes().Create(ctx,
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: ghost, Labels: map[string]string{
			corev1.LabelHostname: ghost}}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// anyRight is one that only administrators have.
var anyRight = authorizationv1.ResourceAttributes{Verb: "*", Group: "*", Resource: "*"}
