// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
)

// Labels that the kubelet puts on each container and sandbox.
const (
	labelPodUID       = "io.kubernetes.pod.uid"
	labelPodName      = "io.kubernetes.pod.name"
	labelPodNamespace = "io.kubernetes.pod.namespace"
)

// RuntimeState is what the runtime has of one pod.
type RuntimeState struct {
	// Live says that the pod has a ready sandbox or a running container. A container that is
	// created but not started cannot be started without a ready sandbox.
	Live bool
	// Allocation is what the pod was granted, or nil if none of its containers carries that.
	Allocation *Allocation
}

// Runtime lists the pods of the container runtime by UID, dead ones included.
type Runtime interface {
	Pods(ctx context.Context) (map[string]RuntimeState, error)
}

// CRI is the container runtime behind a connection.
func CRI(conn grpc.ClientConnInterface) Runtime {
	return cri{runtimeapi.NewRuntimeServiceClient(conn)}
}

type cri struct {
	client runtimeapi.RuntimeServiceClient
}

// Pods implements Runtime. Sandboxes are listed last: a pod has its sandbox before its first
// container, and keeps it until after the last one.
func (c cri) Pods(ctx context.Context) (map[string]RuntimeState, error) {
	containers, err := c.client.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil, fmt.Errorf("list the runtime's containers: %w", err)
	}
	sandboxes, err := c.client.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, fmt.Errorf("list the runtime's sandboxes: %w", err)
	}
	pods := map[string]RuntimeState{}
	for _, container := range containers.GetContainers() {
		uid := container.GetLabels()[labelPodUID]
		pod := pods[uid]
		switch container.GetState() {
		case runtimeapi.ContainerState_CONTAINER_CREATED, runtimeapi.ContainerState_CONTAINER_EXITED:
		default:
			pod.Live = true
		}
		if pod.Allocation == nil {
			pod.Allocation = allocationOf(ctx, container)
		}
		pods[uid] = pod
	}
	for _, sandbox := range sandboxes.GetItems() {
		uid := sandbox.GetMetadata().GetUid()
		pod := pods[uid]
		pod.Live = pod.Live || sandbox.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
		pods[uid] = pod
	}
	delete(pods, "") // of containers that belong to no pod
	return pods, nil
}

// allocationOf returns the allocation that a container carries, or nil.
func allocationOf(ctx context.Context, container *runtimeapi.Container) *Allocation {
	value, ok := container.GetAnnotations()[Annotation]
	if !ok {
		return nil
	}
	labels := container.GetLabels()
	allocation := &Allocation{
		PodUID:    labels[labelPodUID],
		Namespace: labels[labelPodNamespace],
		Name:      labels[labelPodName],
		Since:     time.Unix(0, container.GetCreatedAt()).UTC(),
	}
	var err error
	if allocation.PodInfo, err = deviceinfo.DecodePod(value); err != nil {
		klog.FromContext(ctx).
			Error(err, "A container carries an allocation that cannot be read; its devices are not counted",
				"container", container.GetId(), "pod", allocation.Pod())
		return nil
	}
	return allocation
}
