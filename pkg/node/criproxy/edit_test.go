// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package criproxy

import (
	"context"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

const editedMethod = "/x.Y/Edited"

func TestEditAppendsOnlyToTheRequest(t *testing.T) {
	client := startBoth(t, echo, Options{Editors: map[string]Editor{
		editedMethod: edit(func(_ context.Context, request []byte) ([]byte, error) {
			return append([]byte("+"), request...), nil
		}),
	}})
	for method, want := range map[string]string{editedMethod: "abc+abc", "/x.Y/Other": "abc"} {
		got, err := invoke(testContext(t), client, method, []byte("abc"))
		if err != nil || string(got) != want {
			t.Errorf("%s: %q, %v; want %q", method, got, err, want)
		}
	}
}

func TestEmptyEditKeepsTheRequest(t *testing.T) {
	client := startBoth(t, echo, Options{Editors: map[string]Editor{
		editedMethod: edit(func(context.Context, []byte) ([]byte, error) { return nil, nil }),
	}})
	got, err := invoke(testContext(t), client, editedMethod, []byte("abc"))
	if err != nil || string(got) != "abc" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestRefusedCallDoesNotReachTheRuntime(t *testing.T) {
	var reached atomic.Bool
	client := startBoth(t, func(method string, stream grpc.ServerStream) error {
		reached.Store(true)
		return echo(method, stream)
	}, Options{Editors: map[string]Editor{
		editedMethod: edit(func(context.Context, []byte) ([]byte, error) {
			return nil, status.Error(codes.FailedPrecondition, "device taken")
		}),
	}})
	_, err := invoke(testContext(t), client, editedMethod, []byte("abc"))
	if status.Code(err) != codes.FailedPrecondition || status.Convert(err).Message() != "device taken" {
		t.Errorf("got %v", err)
	}
	if reached.Load() {
		t.Error("a refused call has reached the runtime")
	}
}

func TestEditSeesMetadataAndDeadline(t *testing.T) {
	var key []string
	var deadline bool
	client := startBoth(t, echo, Options{Editors: map[string]Editor{
		editedMethod: edit(func(ctx context.Context, _ []byte) ([]byte, error) {
			md, _ := metadata.FromIncomingContext(ctx)
			key = md.Get("key")
			_, deadline = ctx.Deadline()
			return nil, nil
		}),
	}})
	if _, err := invoke(metadata.AppendToOutgoingContext(testContext(t), "key", "v"), client, editedMethod,
		nil); err != nil {
		t.Fatal(err)
	}
	if len(key) != 1 || key[0] != "v" || !deadline {
		t.Errorf("metadata %v, deadline %v", key, deadline)
	}
}

func TestEditedCallNeedsARequest(t *testing.T) {
	client := startBoth(t, echo, Options{Editors: map[string]Editor{
		editedMethod: edit(func(context.Context, []byte) ([]byte, error) { return nil, nil }),
	}})
	stream, err := client.NewStream(testContext(t), streamShape, editedMethod)
	if err != nil {
		t.Fatal(err)
	}
	stream.CloseSend()
	var message []byte
	if err := stream.RecvMsg(&message); status.Code(err) != codes.Internal {
		t.Errorf("got %v, want Internal", err)
	}
}

// failure is a failed call: its request, and the message of its status.
type failure struct{ request, message string }

// reporting refuses one request, edits all others, and sends failed calls to a channel.
type reporting struct{ failures chan<- failure }

func (r reporting) Edit(_ context.Context, request []byte) ([]byte, error) {
	if string(request) == "refused" {
		return nil, status.Error(codes.FailedPrecondition, "device taken")
	}
	return []byte("+"), nil
}

func (r reporting) Failed(_ context.Context, request []byte, err error) {
	r.failures <- failure{string(request), status.Convert(err).Message()}
}

func TestFailedIsCalledForFailedEditedCalls(t *testing.T) {
	failures := make(chan failure, 10)
	for name, unary := range map[string]map[string]bool{"as a stream": nil, "as a unary call": {editedMethod: true}} {
		client := startBoth(t, func(_ string, stream grpc.ServerStream) error {
			var message []byte
			if err := stream.RecvMsg(&message); err != nil {
				return err
			}
			if string(message) == "good+" {
				return stream.SendMsg(&message)
			}
			return status.Errorf(codes.Unknown, "no %s", message)
		}, Options{
			Editors: map[string]Editor{editedMethod: reporting{failures}},
			Unary:   unary,
		})
		for _, request := range []string{"refused", "good", "bad"} {
			_, err := invoke(testContext(t), client, editedMethod, []byte(request))
			if (err == nil) != (request == "good") {
				t.Errorf("%s, %s: %v", name, request, err)
			}
		}
		if _, err := invoke(testContext(t), client, "/x.Y/Other", []byte("bad")); err == nil {
			t.Errorf("%s: another method did not fail", name)
		}
		if got, want := <-failures, (failure{"bad", "no bad+"}); got != want {
			t.Errorf("%s: reported %q, want %q", name, got, want)
		}
		if more := len(failures); more > 0 {
			t.Errorf("%s: %d more failures", name, more)
		}
	}
}
