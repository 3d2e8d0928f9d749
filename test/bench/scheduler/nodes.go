// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/plugins/gpu"
)

// What a node has: GPUs of 80 GiB, in NVLink pairs, two pairs to a socket.
const (
	gpusPerNode = 8
	gpuMemory   = 80 << 30
)

// draDriver is the name of the DRA driver, and of its device class; pairAttribute that of the
// attribute that GPUs of one NVLink pair have the same value of.
const (
	draDriver     = "gpu.bench.example"
	pairAttribute = "nvlink"
)

// callers is how many calls are made at a time to make and remove things.
const callers = 16

// each calls do with the numbers below count, several at a time, until one returns an error.
func each(ctx context.Context, count int, do func(context.Context, int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(callers)
	for i := range count {
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}

// nodeName returns the name of a node.
func nodeName(i int) string { return fmt.Sprintf("node-%05d", i) }

// makeNodes makes nodes, the first of them full, and their ResourceSlices if any comparison needs
// them.
func (b *bench) makeNodes(ctx context.Context, count, full int) error {
	claims := slices.ContainsFunc(b.comparisons, func(c comparison) bool {
		return c.variant.usesClaims() ||
			c.baseline.usesClaims()
	})
	if claims {
		class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: draDriver}}
		class.Spec.Selectors = []resourceapi.DeviceSelector{
			{CEL: &resourceapi.CELDeviceSelector{Expression: `device.driver == "` + draDriver + `"`}}}
		if _, err := b.client.ResourceV1().DeviceClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil &&
			!apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create the device class: %w", err)
		}
	}
	return each(ctx, count, func(ctx context.Context, i int) error {
		info := inventoryOf(nodeName(i))
		node, err := nodeOf(info)
		if err != nil {
			return err
		}
		if _, err := b.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create node %s: %w", node.Name, err)
		}
		if i < full {
			if err := b.makeHolder(ctx, info); err != nil {
				return err
			}
		}
		if !claims {
			return nil
		}
		if _, err := b.client.ResourceV1().ResourceSlices().Create(ctx, sliceOf(node.Name),
			metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create the ResourceSlice of node %s: %w", node.Name, err)
		}
		return nil
	})
}

// removeNodes removes all nodes, what runs there, and ResourceSlices.
func (b *bench) removeNodes(ctx context.Context) error {
	if err := b.removeHolders(ctx); err != nil {
		return err
	}
	if err := b.client.CoreV1().Nodes().DeleteCollection(ctx, metav1.DeleteOptions{},
		metav1.ListOptions{}); err != nil {
		return fmt.Errorf("delete nodes: %w", err)
	}
	if err := b.client.ResourceV1().ResourceSlices().DeleteCollection(ctx, metav1.DeleteOptions{},
		metav1.ListOptions{}); err != nil {
		return fmt.Errorf("delete ResourceSlices: %w", err)
	}
	return nil
}

// inventoryOf returns the devices of a node.
func inventoryOf(name string) *types.NodeInfo {
	gpus := make([]gpu.GPU, gpusPerNode)
	for i := range gpus {
		gpus[i] = gpu.GPU{ID: fmt.Sprintf("gpu-%d", i), Memory: gpuMemory, Groups: []int{i / 2, i / 4}}
	}
	info := types.NewNodeInfoWithName(name)
	gpu.Publish(info, gpu.Resource, gpus)
	return info
}

func nodeOf(info *types.NodeInfo) (*corev1.Node, error) {
	inventory, err := deviceinfo.EncodeNode(info)
	if err != nil {
		return nil, err
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: info.Name,
		Annotations: map[string]string{deviceinfo.Annotation: inventory}}}
	node.Status.Capacity = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"),
		corev1.ResourcePods:               resource.MustParse("110"),
		corev1.ResourceName(gpu.Resource): *resource.NewQuantity(gpusPerNode, resource.DecimalSI),
	}
	node.Status.Allocatable = node.Status.Capacity
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return node, nil
}

func sliceOf(node string) *resourceapi.ResourceSlice {
	devices := make([]resourceapi.Device, gpusPerNode)
	for i := range devices {
		devices[i].Name = fmt.Sprintf("gpu-%d", i)
		devices[i].Attributes = map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
			pairAttribute: {StringValue: ptr.To(fmt.Sprintf("%s-%d", node, i/2))},
		}
		devices[i].Capacity = map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
			"memory": {Value: *resource.NewQuantity(gpuMemory, resource.BinarySI)}}
	}
	return &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: node},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: draDriver, NodeName: &node, Devices: devices,
			Pool: resourceapi.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1},
		},
	}
}
