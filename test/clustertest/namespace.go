// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package clustertest

import (
	"context"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/test/kube"
)

// Namespace makes a namespace for a test, with the default service account that pods need, and
// returns its name. After the test its pods are deleted all at once, so that those that wait don't
// take the place of those that run, and when they are gone, and their devices free again, the
// namespace.
func Namespace(t *testing.T, client *kube.Client) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), stopTimeout)
	defer cancel()
	namespace, err := client.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create a namespace: %v", err)
	}
	t.Cleanup(func() { deleteNamespace(t, client, namespace.Name) })
	if err := client.AwaitServiceAccount(ctx, namespace.Name); err != nil {
		t.Fatal(err)
	}
	return namespace.Name
}

func deleteNamespace(t *testing.T, client *kube.Client, name string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 3*time.Minute)
	defer cancel()
	pods, err := client.CoreV1().Pods(name).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Errorf("list the pods of namespace %s: %v", name, err)
		return
	}
	var group errgroup.Group
	for _, pod := range pods.Items {
		group.Go(func() error {
			err := client.DeletePod(ctx, &pod)
			if apierrors.IsNotFound(err) { // its controller was faster
				return nil
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
	if err := client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Errorf("delete namespace %s: %v", name, err)
	}
}
