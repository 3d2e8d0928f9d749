// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"context"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/node/crilist"
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
	// Encoded is the value of [Annotation], of any writer, and empty where there is none.
	Encoded string
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
// Any tenant can make the list of what has ended longer than a message of gRPC, by annotations of
// pods that finish. From a runtime that lists in one message, Pods then reads only what pods with a
// ready sandbox have, and containers that have not ended: a pod between two sandboxes lacks its
// exited containers, which count only if the checkpoint is lost.
//
// A container belongs to the pod of its sandbox. Its labels count only where the sandbox is not
// listed, for whether the pod lives: a runtime that restores a checkpoint takes labels and
// annotations from an image, and the image is not to be trusted.
func (c cri) Pods(ctx context.Context) (map[string]RuntimeState, error) {
	containers, err := c.containers(ctx)
	if err != nil {
		return nil, err
	}
	sandboxes, err := crilist.Sandboxes(ctx, c.client, nil)
	if status.Code(err) == codes.ResourceExhausted {
		sandboxes, err = crilist.Sandboxes(ctx, c.client, ready)
	}
	if err != nil {
		return nil, err
	}
	pods := map[string]RuntimeState{}
	podOf := make(map[string]string, len(sandboxes))
	for _, sandbox := range sandboxes {
		uid := sandbox.GetMetadata().GetUid()
		podOf[sandbox.GetId()] = uid
		pod := pods[uid]
		pod.Live = pod.Live || sandbox.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
		pod.Namespace, pod.Name = sandbox.GetMetadata().GetNamespace(), sandbox.GetMetadata().GetName()
		pods[uid] = pod
	}
	for _, container := range containers {
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
				Created: time.Unix(0, container.GetCreatedAt()).UTC(), Encoded: container.GetAnnotations()[Annotation],
				Exited: container.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED,
			})
		}
		pods[uid] = pod
	}
	delete(pods, "") // of containers that belong to no pod
	return pods, nil
}

// ready is the filter for sandboxes that are ready.
var ready = &runtimeapi.PodSandboxFilter{
	State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY},
}

// containers returns the runtime's containers, as far as Pods says.
func (c cri) containers(ctx context.Context) ([]*runtimeapi.Container, error) {
	all, err := crilist.Containers(ctx, c.client, nil)
	if status.Code(err) != codes.ResourceExhausted {
		return all, err
	}
	// In the order of a container's states: one that changes meanwhile is listed at least once, and
	// its last state counts.
	filters := []*runtimeapi.ContainerFilter{
		{State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_CREATED}},
		{State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}},
		{State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_UNKNOWN}},
	}
	sandboxes, err := crilist.Sandboxes(ctx, c.client, ready)
	if err != nil {
		return nil, err
	}
	for _, sandbox := range sandboxes {
		filters = append(filters, &runtimeapi.ContainerFilter{
			State:        &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_EXITED},
			PodSandboxId: sandbox.GetId(),
		})
	}
	last := map[string]*runtimeapi.Container{}
	for _, filter := range filters {
		listed, err := crilist.Containers(ctx, c.client, filter)
		if err != nil {
			return nil, err
		}
		for _, container := range listed {
			last[container.GetId()] = container
		}
	}
	return slices.Collect(maps.Values(last)), nil
}
