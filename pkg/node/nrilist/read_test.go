// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nrilist

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// streaming is a runtime that streams its containers, and nothing else.
type streaming struct{ *runtime }

// NewStream implements grpc.ClientConnInterface.
func (r streaming) NewStream(
	ctx context.Context, description *grpc.StreamDesc, method string, options ...grpc.CallOption,
) (grpc.ClientStream, error) {
	if method == runtimeapi.RuntimeService_StreamContainers_FullMethodName {
		return &stream{of: r.runtime}, nil
	}
	return r.runtime.NewStream(ctx, description, method, options...)
}

// stream has one container in each message.
type stream struct {
	grpc.ClientStream
	of   *runtime
	left []*runtimeapi.Container
}

func (s *stream) SendMsg(request any) error {
	s.left = s.of.containers(request.(*runtimeapi.StreamContainersRequest).GetFilter())
	return nil
}

func (s *stream) CloseSend() error { return nil }

func (s *stream) RecvMsg(reply any) error {
	if len(s.left) == 0 {
		return io.EOF
	}
	next := &runtimeapi.StreamContainersResponse{Containers: s.left[:1]}
	s.left = s.left[1:]
	proto.Merge(reply.(proto.Message), next)
	return nil
}

// many returns a runtime whose containers do not fit into one message, all in one state.
func many(state runtimeapi.ContainerState) *runtime {
	r := &runtime{
		variables: slices.Repeat([]int{10}, 60), listed: 300 << 10, states: map[string]runtimeapi.ContainerState{},
	}
	for i := range r.variables {
		r.states[fmt.Sprint("c", i)] = state
	}
	return r
}

func TestContainersThatHaveEndedDoNotMakeTheListTooLong(t *testing.T) {
	r := many(runtimeapi.ContainerState_CONTAINER_EXITED)
	r.states["c7"] = runtimeapi.ContainerState_CONTAINER_CREATED
	r.states["c8"] = runtimeapi.ContainerState_CONTAINER_RUNNING
	list, err := New(r).List(t.Context())
	if err != nil || len(list.Containers) != 2 {
		t.Errorf("%d containers, %v", len(list.Containers), err)
	}
}

func TestAListThatDoesNotFitIntoAMessageIsReadAsAStream(t *testing.T) {
	list, err := New(streaming{many(runtimeapi.ContainerState_CONTAINER_RUNNING)}).List(t.Context())
	if err != nil || len(list.Containers) != 60 {
		t.Errorf("%d containers, %v", len(list.Containers), err)
	}
}

func TestAListThatIsTooLongForARuntimeWithoutStreamsSaysWhatToDo(t *testing.T) {
	_, err := New(many(runtimeapi.ContainerState_CONTAINER_RUNNING)).List(t.Context())
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(fmt.Sprint(err), "Delete pods with large") {
		t.Error(err)
	}
}

// starting is a runtime whose container is started after each list.
type starting struct{ *runtime }

// Invoke implements grpc.ClientConnInterface.
func (r starting) Invoke(ctx context.Context, method string, request, reply any, options ...grpc.CallOption) error {
	err := r.runtime.Invoke(ctx, method, request, reply, options...)
	if method == runtimeapi.RuntimeService_ListContainers_FullMethodName {
		r.states["c0"] = runtimeapi.ContainerState_CONTAINER_RUNNING
	}
	return err
}

func TestAContainerThatStartsDuringAListIsListedOnce(t *testing.T) {
	created := map[string]runtimeapi.ContainerState{"c0": runtimeapi.ContainerState_CONTAINER_CREATED}
	list, err := New(starting{&runtime{variables: []int{10}, states: created}}).List(t.Context())
	if err != nil || len(list.Containers) != 1 {
		t.Errorf("%d containers, %v", len(list.Containers), err)
	}
}
