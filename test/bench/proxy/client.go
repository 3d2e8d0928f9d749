// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
)

// maxMessage is the largest message that kubelet and containerd take.
const maxMessage = 16 << 20

// message is one that is not decoded. A received one that is large has its size only.
type message struct {
	data []byte
	size int
}

// keep is the size up to which received messages are kept.
const keep = 1 << 12

// rawCodec costs client and runtime as little as can be.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.(*message).data)}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	m := v.(*message)
	m.data, m.size = nil, data.Len()
	if m.size <= keep {
		m.data = data.Materialize()
	}
	return nil
}

// dial connects as the kubelet does: with grpc's windows and buffers.
func dial(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallRecvMsgSize(maxMessage),
			grpc.MaxCallSendMsgSize(maxMessage)))
}

// call makes one call of the workload and returns how long it took.
func call(ctx context.Context, conn *grpc.ClientConn, w *workload) (time.Duration, error) {
	began := time.Now()
	if w.replies == 1 {
		var reply message
		if err := conn.Invoke(ctx, w.method, &message{data: w.request}, &reply); err != nil {
			return 0, err
		}
		return time.Since(began), nil
	}
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, w.method)
	if err != nil {
		return 0, err
	}
	if err := stream.SendMsg(&message{data: w.request}); err != nil {
		return 0, err
	}
	if err := stream.CloseSend(); err != nil {
		return 0, err
	}
	for received := 0; ; received++ {
		var reply message
		err := stream.RecvMsg(&reply)
		if errors.Is(err, io.EOF) && received == w.replies {
			return time.Since(began), nil
		}
		if err != nil {
			return 0, fmt.Errorf("after %d of %d messages: %w", received, w.replies, err)
		}
	}
}
