// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kubedevice/kubedevice/test/kube"
)

// controllerRules are the rights of a Controller beyond the role edit.
var controllerRules = []rbacv1.PolicyRule{
	{
		APIGroups: []string{""}, Resources: []string{"pods/status", "pods/ephemeralcontainers"},
		Verbs: []string{"patch", "update"},
	},
	{APIGroups: []string{""}, Resources: []string{"pods/binding", "bindings"}, Verbs: []string{"create"}},
}

// labellerRules are the rights of a Labeller, everywhere.
var labellerRules = []rbacv1.PolicyRule{{
	APIGroups: []string{""}, Resources: []string{"nodes", "nodes/status"}, Verbs: []string{"get", "patch", "update"},
}}

// patchNodes is one of labellerRules.
var patchNodes = authorizationv1.ResourceAttributes{Verb: "patch", Resource: "nodes", Subresource: "status"}

// tenant returns the client of a Tenant of the attempt's namespace.
func (s *Stage) tenant(ctx context.Context) (*kube.Client, error) {
	client, err := s.account(ctx, "tenant", "edit", nil)
	if err != nil {
		return nil, err
	}
	return client, client.AwaitRights(ctx, authorizationv1.ResourceAttributes{
		Namespace: s.namespace, Verb: "create", Resource: "pods"})
}

// controller returns the client of a Controller of the attempt's namespace.
func (s *Stage) controller(ctx context.Context) (*kube.Client, error) {
	client, err := s.account(ctx, "controller", "edit", controllerRules)
	if err != nil {
		return nil, err
	}
	return client, client.AwaitRights(ctx,
		authorizationv1.ResourceAttributes{Namespace: s.namespace, Verb: "create", Resource: "pods"},
		authorizationv1.ResourceAttributes{
			Namespace: s.namespace, Verb: "create", Resource: "pods", Subresource: "binding",
		})
}

// labeller returns the client of a Labeller.
func (s *Stage) labeller(ctx context.Context) (*kube.Client, error) {
	client, err := s.account(ctx, "labeller", "", nil)
	if err != nil {
		return nil, err
	}
	if err := s.grantClusterRights(ctx, "labeller", labellerRules); err != nil {
		return nil, err
	}
	return client, client.AwaitRights(ctx, patchNodes)
}

// account makes a service account of the attempt's namespace, with a cluster role there and further
// rules, and returns a client that has nothing but its token.
func (s *Stage) account(ctx context.Context, name, role string, rules []rbacv1.PolicyRule) (*kube.Client, error) {
	if err := s.makeNamespace(ctx); err != nil {
		return nil, err
	}
	accounts := s.admin.CoreV1().ServiceAccounts(s.namespace)
	_, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	bind := func(kind, role string) error {
		_, err := s.admin.RbacV1().RoleBindings(s.namespace).Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name + "-" + role}, Subjects: s.subjects(name),
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role},
		}, metav1.CreateOptions{})
		return err
	}
	if role != "" && err == nil {
		if err := bind("ClusterRole", role); err != nil {
			return nil, err
		}
	}
	if len(rules) > 0 && err == nil {
		role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
		if _, err := s.admin.RbacV1().Roles(s.namespace).Create(ctx, role, metav1.CreateOptions{}); err != nil {
			return nil, err
		}
		if err := bind("Role", name); err != nil {
			return nil, err
		}
	}
	token, err := accounts.CreateToken(ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	config := rest.AnonymousClientConfig(s.admin.Config)
	config.BearerToken = token.Status.Token
	return kube.NewClient(config)
}

// grantClusterRights gives a service account of the attempt's namespace rights in the whole
// cluster.
func (s *Stage) grantClusterRights(ctx context.Context, name string, rules []rbacv1.PolicyRule) error {
	all := s.namespace + "-" + name
	_, err := s.admin.RbacV1().ClusterRoles().Create(ctx,
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: all}, Rules: rules}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return s.bindEverywhere(ctx, all, s.subjects(name))
}

// bindEverywhere binds a cluster role in the whole cluster.
func (s *Stage) bindEverywhere(ctx context.Context, role string, subjects []rbacv1.Subject) error {
	_, err := s.admin.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: s.attempt.ID + "-"}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
	}, metav1.CreateOptions{})
	return err
}

func (s *Stage) subjects(name string) []rbacv1.Subject {
	return []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: s.namespace, Name: name}}
}

// makeNamespace makes the attempt's namespace, once.
func (s *Stage) makeNamespace(ctx context.Context) error {
	if s.namespaced {
		return nil
	}
	_, err := s.admin.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	s.namespaced = true
	return s.admin.AwaitServiceAccount(ctx, s.namespace)
}
