// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
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
	holder := podOf(eight, "holder-"+node.Name, "nobody")
	annotation, err := deviceinfo.EncodePod(&types.PodInfo{
		Name: holder.Name, NodeName: node.Name,
		RunningContainers: map[string]types.ContainerInfo{holder.Spec.Containers[0].Name: main},
	})
	if err != nil {
		return fmt.Errorf("write what pod %s holds: %w", holder.Name, err)
	}
	holder.Namespace, holder.Spec.NodeName = holdersNamespace, node.Name
	holder.Annotations = map[string]string{deviceinfo.Annotation: annotation}
	_, err = b.client.CreatePod(ctx, holder)
	return err
}

// removeHolders removes the pods that run already.
func (b *bench) removeHolders(ctx context.Context) error {
	now := metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}
	if err := b.client.CoreV1().Pods(holdersNamespace).DeleteCollection(ctx, now, metav1.ListOptions{}); err != nil {
		return fmt.Errorf("delete the pods that run already: %w", err)
	}
	return nil
}
