// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package criproxy

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/kubedevice/kubedevice/pkg/node/failpoint"
)

// streamShape fits every kind of call: on the wire a unary call is a stream of one message each
// way.
var streamShape = &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}

// errNoMethod cannot occur: grpc passes the stream of a call with the method's name.
var errNoMethod = status.Error(codes.Internal, "kubecri: call without a method name")

// serveCall is the grpc.StreamHandler of every method.
func (p *Proxy) serveCall(_ any, down grpc.ServerStream) (err error) {
	method, ok := grpc.MethodFromServerStream(down)
	if !ok {
		return errNoMethod
	}
	var waited time.Duration
	if p.options.Metrics != nil {
		start := time.Now()
		defer func() {
			p.options.Metrics.ObserveCall(
				Call{Method: method, Code: status.Code(err), Took: time.Since(start), Waited: waited})
		}()
	}
	first, request, err := p.edited(method, down)
	if err != nil {
		return err
	}
	if editor, ok := p.options.Editors[method]; ok {
		defer func() {
			if err != nil {
				editor.Failed(down.Context(), request, err)
			}
		}()
	}
	if p.options.Unary[method] {
		return p.forwardUnary(method, down, first, &waited)
	}
	return p.forward(method, down, first, &waited)
}

// edited receives the first request of an edited or limited method, edits it, and returns it with
// the original request. For all other methods it returns nil at once.
func (p *Proxy) edited(method string, down grpc.ServerStream) (first *frame, original []byte, err error) {
	editor, isEdited := p.options.Editors[method]
	limit, isLimited := p.options.Limits[method]
	if !isEdited && !isLimited {
		return nil, nil, nil
	}
	if isEdited {
		failpoint.Reach(failpoint.Accepted)
	}
	request, err := p.receive(method, down, limit)
	if err != nil || !isEdited {
		return request, nil, err
	}
	failpoint.Reach(failpoint.Received)
	original = request.data.Materialize()
	suffix, err := editor.Edit(down.Context(), original)
	if err != nil {
		request.free()
		return nil, nil, err
	}
	if len(suffix) > 0 {
		request.data = append(slices.Clip(request.data), mem.SliceBuffer(suffix))
	}
	failpoint.Reach(failpoint.Forwarding)
	return request, original, nil
}

// receive receives the first request of a call, within the limit if there is one.
func (p *Proxy) receive(method string, down grpc.ServerStream, limit Limit) (*frame, error) {
	if limit.Refuser != nil {
		select {
		case p.receiving <- struct{}{}:
			defer func() { <-p.receiving }()
		case <-down.Context().Done():
			return nil, status.FromContextError(down.Context().Err()).Err()
		}
	}
	request := &frame{}
	if err := down.RecvMsg(request); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, status.Errorf(codes.Internal, "kubecri: %s without a request", method)
		}
		return nil, err
	}
	if length := request.data.Len(); limit.Refuser != nil && length > limit.Bytes {
		defer request.free()
		reader := request.data.Reader()
		defer reader.Close()
		return nil, limit.Refuser.Refuse(down.Context(), reader, length)
	}
	return request, nil
}

// isEdited reports whether requests of the method are edited.
func (p *Proxy) isEdited(method string) bool { return p.options.Editors[method] != nil }

// forward opens the call at the runtime and forwards messages both ways until the runtime ends it.
// first, if not nil, is an already received request. waited grows by the time that the call waits
// for the runtime.
func (p *Proxy) forward(method string, down grpc.ServerStream, first *frame, waited *time.Duration) error {
	ctx, cancel := context.WithCancelCause(outgoing(down.Context()))
	defer cancel(nil)
	stop := context.AfterFunc(p.ending, func() { cancel(errEnding) })
	defer stop()
	upstream := p.upstream
	if p.options.Lists != nil {
		// Ten thousand events of containers take twice the time with the window of unary answers.
		upstream = p.options.Lists.Upstream
	}
	opening := time.Now()
	up, err := upstream.NewStream(ctx, streamShape, method, grpc.ForceCodecV2(rawCodec{}))
	addSince(waited, opening)
	if err != nil {
		if first != nil {
			first.free()
		}
		return err
	}
	if failpoint.Enabled {
		down, up = withFailpoints(down, up, p.isEdited(method))
	}
	p.requests.Go(func() {
		if err := forwardRequests(up, down, first); err != nil {
			cancel(err)
		}
	})
	err = forwardReplies(down, upstreamCall{up, waited})
	down.SetTrailer(up.Trailer())
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(cause, ctx.Err()) {
		return cause
	}
	return err
}

// forwardRequests sends first and then the kubelet's messages until the kubelet half-closes. It
// returns an error if the call cannot continue. A call that the runtime has ended is no error here:
// its status comes with the replies.
func forwardRequests(up grpc.ClientStream, down grpc.ServerStream, first *frame) error {
	request := first
	for {
		if request == nil {
			request = &frame{}
			if err := down.RecvMsg(request); errors.Is(err, io.EOF) {
				return up.CloseSend()
			} else if err != nil {
				return err
			}
		}
		err := up.SendMsg(request)
		request.free()
		request = nil
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// forwardReplies forwards headers and messages until the runtime ends the call. It returns the
// call's status.
func forwardReplies(down grpc.ServerStream, up grpc.ClientStream) error {
	// Headers can arrive long before the first message of a stream. An answer with only a status
	// has no headers.
	if header, err := up.Header(); err == nil && header != nil {
		if err := down.SendHeader(header); err != nil {
			return err
		}
	}
	for {
		reply := &frame{}
		if err := up.RecvMsg(reply); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		err := down.SendMsg(reply)
		reply.free()
		if err != nil {
			return err
		}
	}
}
