// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/pkg/seal"
	"github.com/kubedevice/kubedevice/plugins/gpu"
)

// holdersNamespace has the pods that run already, apart from those of batches. It is always there.
const holdersNamespace = metav1.NamespaceSystem

// makeHolder makes a pod that runs on a node already and has all of its GPUs, for those who count
// them and for ours.
func (b *bench) makeHolder(ctx context.Context, node *types.NodeInfo) error {
	main := types.ContainerInfo{DevRequests: types.ResourceList{}, AllocateFrom: types.ResourceLocation{}}
	for name, quantity := range node.Allocatable {
		if _, _, ok := gpu.Split(name); ok {
			main.DevRequests[name], main.AllocateFrom[name] = quantity, name
		}
	}
	holder := podOf(eight, "holder-"+node.Name, "absent")
	holder.Namespace = holdersNamespace
	holder, err := b.client.CreatePod(ctx, holder)
	if err != nil {
		return err
	}
	held := &types.PodInfo{
		Name: holder.Name, NodeName: node.Name,
		RunningContainers: map[string]types.ContainerInfo{holder.Spec.Containers[0].Name: main},
	}
	annotation, err := deviceinfo.EncodePod(held)
	if err != nil {
		return fmt.Errorf("write what pod %s holds: %w", holder.Name, err)
	}
	sealed, err := b.signer.Seal(seal.Decision{
		UID: holder.UID, Namespace: holder.Namespace, Name: holder.Name, Node: node.Name,
		Allocation: seal.DigestOf(held), Time: time.Now(),
	})
	if err != nil {
		return fmt.Errorf("seal what pod %s holds: %w", holder.Name, err)
	}
	return b.client.CoreV1().Pods(holder.Namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: holder.Name, UID: holder.UID,
			Annotations: map[string]string{deviceinfo.Annotation: annotation, seal.Annotation: sealed}},
		Target: corev1.ObjectReference{Kind: "Node", Name: node.Name},
	}, metav1.CreateOptions{})
}

// removeHolders removes the pods that run already.
func (b *bench) removeHolders(ctx context.Context) error {
	now := metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}
	if err := b.client.CoreV1().Pods(holdersNamespace).DeleteCollection(ctx, now, metav1.ListOptions{}); err != nil {
		return fmt.Errorf("delete the pods that run already: %w", err)
	}
	return nil
}
