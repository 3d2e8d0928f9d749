// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package criproxy

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/kubedevice/kubedevice/pkg/node/failpoint"
)

// unaryShape is the shape of a unary call. With it, a client sends the request and its end as one
// frame.
var unaryShape = &grpc.StreamDesc{}

// forwardUnary is forward for a method known to be unary. Such a call does not send in both
// directions at the same time, so it needs no second goroutine, and forwardUnary sends the reply in
// one piece with its headers, trailers and status.
func (p *Proxy) forwardUnary(method string, down grpc.ServerStream, first *frame, waited *time.Duration) error {
	request := first
	if request == nil {
		request = &frame{}
		if err := down.RecvMsg(request); errors.Is(err, io.EOF) {
			// The runtime decides how to answer a call without a request.
			return p.forward(method, down, nil, waited)
		} else if err != nil {
			return err
		}
	}
	defer request.free()
	upstream, ctx, complete := p.upstream, outgoing(down.Context()), noWait
	if p.options.Lists.has(method) {
		upstream = p.options.Lists.Upstream
	} else {
		ctx, complete = withCompletion(ctx)
	}
	opening := time.Now()
	up, err := upstream.NewStream(ctx, unaryShape, method, grpc.ForceCodecV2(rawCodec{}))
	addSince(waited, opening)
	if err != nil {
		return err
	}
	if failpoint.Enabled {
		down, up = withFailpoints(down, up, p.isEdited(method))
	}
	up = upstreamCall{up, waited}
	// For a call that the runtime has ended, receiving the reply returns the status.
	if err := up.SendMsg(request); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	var release func()
	// An answer with only a status has no headers.
	if header, err := up.Header(); err == nil && header != nil {
		// The reply sends the headers. Setting them is an error only after that.
		if err := down.SetHeader(header); err != nil {
			return err
		}
		if release, err = p.answers.take(ctx, method, complete); err != nil {
			return err
		}
	}
	return forwardReply(down, up, release)
}

// forwardReply forwards the reply of a unary call, or returns the call's status. release, nil for a
// reply without a slot, gives the slot back: when the transport does not hold the reply any more.
func forwardReply(down grpc.ServerStream, up grpc.ClientStream, release func()) error {
	if release != nil {
		defer release()
	}
	reply := &frame{}
	err := up.RecvMsg(reply)
	down.SetTrailer(up.Trailer())
	if err != nil {
		reply.free()
		return err
	}
	if release == nil {
		defer reply.free()
		return down.SendMsg(reply)
	}
	freed := reply.notifyFreed()
	err = down.SendMsg(reply)
	reply.free()
	select {
	case <-freed:
	case <-down.Context().Done():
	}
	return err
}

// outgoing returns the context of the call to the runtime for the kubelet's call with this context.
func outgoing(ctx context.Context) context.Context {
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		return metadata.NewOutgoingContext(ctx, md)
	}
	return ctx
}
