// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// serveReencode is a proxy of the usual kind: generated server in front, generated client behind.
func serveReencode(listener net.Listener, upstream string) error {
	conn, err := grpc.NewClient("unix://"+upstream, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)))
	if err != nil {
		return err
	}
	defer conn.Close()
	server := grpc.NewServer(grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage))
	runtimeapi.RegisterRuntimeServiceServer(server, &reencoder{runtime: runtimeapi.NewRuntimeServiceClient(conn)})
	return server.Serve(listener)
}

type reencoder struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtime runtimeapi.RuntimeServiceClient
}

func outgoing(ctx context.Context) context.Context {
	md, _ := metadata.FromIncomingContext(ctx)
	return metadata.NewOutgoingContext(ctx, md)
}

func (r *reencoder) Version(ctx context.Context,
	request *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return r.runtime.Version(outgoing(ctx), request)
}

func (r *reencoder) ListContainers(ctx context.Context,
	request *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	return r.runtime.ListContainers(outgoing(ctx), request)
}

// CreateContainer adds a device as if it had decided nothing.
func (r *reencoder) CreateContainer(ctx context.Context,
	request *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	if request.GetSandboxConfig().GetMetadata().GetUid() == devicePod {
		config := request.GetConfig()
		config.Devices = append(config.Devices, &runtimeapi.Device{HostPath: "/dev/gpu0", ContainerPath: "/dev/gpu0",
			Permissions: "rw"})
	}
	return r.runtime.CreateContainer(outgoing(ctx), request)
}

func (r *reencoder) GetContainerEvents(request *runtimeapi.GetEventsRequest,
	down runtimeapi.RuntimeService_GetContainerEventsServer) error {
	up, err := r.runtime.GetContainerEvents(outgoing(down.Context()), request)
	if err != nil {
		return err
	}
	for {
		event, err := up.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := down.Send(event); err != nil {
			return err
		}
	}
}
