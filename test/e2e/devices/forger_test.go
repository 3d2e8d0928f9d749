// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"context"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/test/kube"
)

// forger is a user who may edit what is in one namespace, and write pods' status, bindings and
// nodes besides. It is a group, too.
const forger = "mallory"

// newForger lets forger do in the namespace what an editor may, and write pods' status and bindings
// there, and nodes everywhere, until the test ends.
func newForger(ctx context.Context, t *testing.T, namespace string) *kube.Client {
	t.Helper()
	rbac := shared.Client.RbacV1()
	subjects := []rbacv1.Subject{
		{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: forger},
		{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: forger},
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "forger-"}, Rules: []rbacv1.PolicyRule{
		{
			APIGroups: []string{""}, Resources: []string{"nodes", "nodes/status"},
			Verbs: []string{"get", "patch", "update"},
		},
		{
			APIGroups: []string{""}, Resources: []string{"pods/status", "pods/ephemeralcontainers"},
			Verbs: []string{"patch", "update"},
		},
		{APIGroups: []string{""}, Resources: []string{"pods/binding", "bindings"}, Verbs: []string{"create"}},
	}}
	role, err := rbac.ClusterRoles().Create(ctx, role, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	everywhere := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
	}
	if _, err := rbac.ClusterRoleBindings().Create(ctx, everywhere, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		if err := rbac.ClusterRoleBindings().Delete(ctx, role.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		if err := rbac.ClusterRoles().Delete(ctx, role.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	here := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "edit"}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
	}
	if _, err := rbac.RoleBindings(namespace).Create(ctx, here, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	client, err := shared.Client.As(forger)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.AwaitRights(ctx,
		authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "create", Resource: "pods"},
		authorizationv1.ResourceAttributes{Verb: "patch", Resource: "nodes", Subresource: "status"},
	); err != nil {
		t.Fatal(err)
	}
	return client
}
