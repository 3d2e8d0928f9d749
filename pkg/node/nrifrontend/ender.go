// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nrifrontend

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Ender ends what may not run.
type Ender interface {
	// EndContainer ends a container of the runtime at once.
	EndContainer(ctx context.Context, id string) error
	// EndPod ends a sandbox of the runtime with its containers. The kubelet makes another one.
	EndPod(ctx context.Context, id string) error
}

// CRI is the Ender of the container runtime behind a connection.
func CRI(conn grpc.ClientConnInterface) Ender { return cri{runtimeapi.NewRuntimeServiceClient(conn)} }

type cri struct {
	client runtimeapi.RuntimeServiceClient
}

// EndContainer implements Ender. A container that was not started yet, which cannot be stopped, is
// removed.
func (c cri) EndContainer(ctx context.Context, id string) error {
	_, err := c.client.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id})
	if err != nil {
		return err
	}
	now, err := c.client.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	switch {
	case status.Code(err) == codes.NotFound:
		return nil
	case err != nil:
		return err
	case now.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_CREATED:
		_, err = c.client.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id})
		return err
	case now.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING:
		return errors.New("it was started while it was ended")
	}
	return nil
}

// EndPod implements Ender.
func (c cri) EndPod(ctx context.Context, id string) error {
	if _, err := c.client.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
		return err
	}
	_, err := c.client.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
	return err
}
