// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package criproxy

import (
	"context"
	"errors"
	"io"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const unaryMethod = "/x.Y/Unary"

var knownUnary = Options{Unary: map[string]bool{unaryMethod: true}}

func TestCancellationOfAUnaryCallReachesTheRuntime(t *testing.T) {
	began, ended := make(chan struct{}), make(chan error, 1)
	client := startBoth(t, func(_ string, stream grpc.ServerStream) error {
		close(began)
		<-stream.Context().Done()
		ended <- stream.Context().Err()
		return nil
	}, knownUnary)
	ctx, cancel := context.WithCancel(testContext(t))
	answered := make(chan error, 1)
	go func() {
		_, err := invoke(ctx, client, unaryMethod, nil)
		answered <- err
	}()
	<-began
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the runtime saw %v", err)
	}
	if err := <-answered; status.Code(err) != codes.Canceled {
		t.Errorf("the kubelet saw %v", err)
	}
}

func TestRuntimeAnswersAUnaryCallWithoutARequest(t *testing.T) {
	client := startBoth(t, func(_ string, stream grpc.ServerStream) error {
		var message []byte
		if err := stream.RecvMsg(&message); !errors.Is(err, io.EOF) {
			t.Errorf("the runtime received %q, %v; want the end", message, err)
		}
		return status.Error(codes.DataLoss, "no request")
	}, knownUnary)
	stream, err := client.NewStream(testContext(t), streamShape, unaryMethod)
	if err != nil {
		t.Fatal(err)
	}
	stream.CloseSend()
	var message []byte
	if err := stream.RecvMsg(&message); status.Code(err) != codes.DataLoss {
		t.Errorf("got %v, want DataLoss", err)
	}
}

func TestUnaryCallHasTheStatusOfAnEarlyRefusal(t *testing.T) {
	client := startBoth(t, func(string, grpc.ServerStream) error {
		return status.Error(codes.ResourceExhausted,
			"too busy")
	}, knownUnary)
	for range 100 {
		if _, err := invoke(testContext(t), client, unaryMethod,
			make([]byte, 1<<20)); status.Code(err) != codes.ResourceExhausted {
			t.Fatalf("got %v, want ResourceExhausted", err)
		}
	}
}
