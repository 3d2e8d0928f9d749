// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package crilist lists the containers and sandboxes of a container runtime by the CRI. Annotations
// and labels of pods make such a list longer than a message of gRPC, also those of pods that have
// ended: it is read as a stream from runtimes that have it. For those that do not, an error has the
// code ResourceExhausted if the list is too long. All functions are safe for concurrent use.
package crilist

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Containers returns the runtime's containers that pass the filter, all without one.
func Containers(
	ctx context.Context, client runtimeapi.RuntimeServiceClient, filter *runtimeapi.ContainerFilter,
) ([]*runtimeapi.Container, error) {
	listed, err := read(ctx, client.StreamContainers, &runtimeapi.StreamContainersRequest{Filter: filter},
		(*runtimeapi.StreamContainersResponse).GetContainers)
	if status.Code(err) == codes.Unimplemented {
		var answer *runtimeapi.ListContainersResponse
		answer, err = client.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: filter})
		listed = answer.GetContainers()
	}
	if err != nil {
		return nil, listError("containers", err)
	}
	return listed, nil
}

// Sandboxes returns the runtime's sandboxes that pass the filter, all without one. Those of pods
// that have ended are among them.
func Sandboxes(
	ctx context.Context, client runtimeapi.RuntimeServiceClient, filter *runtimeapi.PodSandboxFilter,
) ([]*runtimeapi.PodSandbox, error) {
	listed, err := read(ctx, client.StreamPodSandboxes, &runtimeapi.StreamPodSandboxesRequest{Filter: filter},
		(*runtimeapi.StreamPodSandboxesResponse).GetPodSandboxes)
	if status.Code(err) == codes.Unimplemented {
		var answer *runtimeapi.ListPodSandboxResponse
		answer, err = client.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: filter})
		listed = answer.GetItems()
	}
	if err != nil {
		return nil, listError("sandboxes", err)
	}
	return listed, nil
}

// read returns the items of all messages of a stream.
func read[Request, Response, Item any](
	ctx context.Context,
	call func(context.Context, *Request, ...grpc.CallOption) (grpc.ServerStreamingClient[Response], error),
	request *Request, items func(*Response) []Item,
) (all []Item, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := call(ctx, request)
	for err == nil {
		var answer *Response
		if answer, err = stream.Recv(); err == nil {
			all = append(all, items(answer)...)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return all, err
}

// listError returns why the runtime has not listed its objects of a kind.
func listError(kind string, err error) error {
	if status.Code(err) == codes.ResourceExhausted {
		return fmt.Errorf("list the runtime's %s: they do not fit into one message of gRPC, and this runtime lists "+
			"them in one: %w. Delete pods with large annotations and labels on this node, also those that have "+
			"ended, or use a runtime that streams its lists, as containerd 2.4 does", kind, err)
	}
	return fmt.Errorf("list the runtime's %s: %w", kind, err)
}
