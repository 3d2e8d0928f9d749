// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/test/await"
)

// makeClaims makes the claims of a batch's pods.
func (b *bench) makeClaims(ctx context.Context, w variant, batch, count int) error {
	return each(ctx, count, func(ctx context.Context, i int) error {
		claim := claimOf(podName(batch, i), w.request(i).claimed)
		if _, err := b.client.ResourceV1().ResourceClaims(claim.Namespace).Create(ctx, claim,
			metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create claim %s: %w", claim.Name, err)
		}
		return nil
	})
}

// makePods makes the pods of a batch, for the scheduler of that name.
func (b *bench) makePods(ctx context.Context, w variant, scheduler string, batch, count int) error {
	return each(ctx, count, func(ctx context.Context, i int) error {
		_, err := b.client.CreatePod(ctx, podOf(w.request(i), podName(batch, i), scheduler))
		return err
	})
}

// removePods removes all pods and claims, and returns when they are gone.
func (b *bench) removePods(ctx context.Context) error {
	pods, claims := b.client.CoreV1().Pods(metav1.NamespaceDefault),
		b.client.ResourceV1().ResourceClaims(metav1.NamespaceDefault)
	now := metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}
	if err := pods.DeleteCollection(ctx, now, metav1.ListOptions{}); err != nil {
		return fmt.Errorf("delete pods: %w", err)
	}
	list, err := claims.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list claims: %w", err)
	}
	// The scheduler has put a finalizer on each, which the claims' controller would take away.
	err = each(ctx, len(list.Items), func(ctx context.Context, i int) error {
		name := list.Items[i].Name
		if _, err := claims.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
			metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("release claim %s: %w", name, err)
		}
		if err := claims.Delete(ctx, name, now); err != nil {
			return fmt.Errorf("delete claim %s: %w", name, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return b.awaitNoPods(ctx)
}

// pollInterval is how often it is looked whether something has come about.
const pollInterval = 20 * time.Millisecond

// awaitNoPods waits until there are no pods.
func (b *bench) awaitNoPods(ctx context.Context) error {
	return await.Until(ctx, "the pods to be gone", func(ctx context.Context) (bool, error) {
		left, err := b.client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return false, fmt.Errorf("list pods: %w", err)
		}
		return len(left.Items) == 0, nil
	})
}
