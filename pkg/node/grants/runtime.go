// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// labelPodUID is a label that the kubelet puts on each container.
const labelPodUID = "io.kubernetes.pod.uid"

// RuntimeState is what the runtime has of one pod.
type RuntimeState struct {
	// Live says that the pod has a ready sandbox or a running container. A container that is
	// created but not started cannot be started without a ready sandbox.
	Live bool
	// Namespace and Name are the pod's, as its sandbox has them. They are empty for a pod without
	// one.
	Namespace, Name string
	// Containers are those in the pod's sandboxes.
	Containers []RuntimeContainer
}

// RuntimeContainer is what the runtime has of one container.
type RuntimeContainer struct {
	ID, Name string
	// Attempt is how often the kubelet has created the container of this name before, in the life
	// of its pod. Unlike Created, it does not depend on the node's clock.
	Attempt uint32
	Created time.Time
	// Carried is the value of [Annotation], of any writer, and empty where there is none.
	Carried string
	// Exited says that it has ended.
	Exited bool
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
//
// A container belongs to the pod of its sandbox. Its labels count only where the sandbox is not
// listed, for whether the pod lives: a runtime that restores a checkpoint takes labels and
// annotations from an image, and the image is not to be trusted.
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
	podOf := make(map[string]string, len(sandboxes.GetItems()))
	for _, sandbox := range sandboxes.GetItems() {
		uid := sandbox.GetMetadata().GetUid()
		podOf[sandbox.GetId()] = uid
		pod := pods[uid]
		pod.Live = pod.Live || sandbox.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
		pod.Namespace, pod.Name = sandbox.GetMetadata().GetNamespace(), sandbox.GetMetadata().GetName()
		pods[uid] = pod
	}
	for _, container := range containers.GetContainers() {
		uid, listed := podOf[container.GetPodSandboxId()]
		if !listed {
			uid = container.GetLabels()[labelPodUID]
		}
		pod := pods[uid]
		switch container.GetState() {
		case runtimeapi.ContainerState_CONTAINER_CREATED, runtimeapi.ContainerState_CONTAINER_EXITED:
		default:
			pod.Live = true
		}
		if listed {
			pod.Containers = append(pod.Containers, RuntimeContainer{
				ID: container.GetId(), Name: container.GetMetadata().GetName(),
				Attempt: container.GetMetadata().GetAttempt(),
				Created: time.Unix(0, container.GetCreatedAt()).UTC(), Carried: container.GetAnnotations()[Annotation],
				Exited: container.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED,
			})
		}
		pods[uid] = pod
	}
	delete(pods, "") // of containers that belong to no pod
	return pods, nil
}
