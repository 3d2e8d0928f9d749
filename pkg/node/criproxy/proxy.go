// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package criproxy passes gRPC calls from one Unix socket to another, byte for byte.
//
// It knows no service and no message type: whatever method the kubelet calls, unary or streaming,
// known today or not, goes to the runtime with its metadata, deadline, cancellation and half-close,
// and the runtime's answer comes back with its headers, trailers, status code and status details.
// It sets no limit to message size but where its options do, and back-pressure holds: a slow reader
// costs one flow-control window. It never answers Unimplemented by itself, which the kubelet would
// remember until its restart; while the runtime is away the answer is Unavailable.
//
// A method can be given an [Edit], which sees the request's bytes before the runtime does and may
// refuse the call or append to it. Appending is an edit because protobuf merges: a field that
// occurs again extends a repeated field or a map, and merges into a message. What the kubelet sent
// keeps its exact bytes.
package criproxy

import (
	"context"
	"io"
	"math"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

// Edit looks at a request before the runtime sees it. It returns bytes to append to the request, or
// none; an error is the call's answer, and the runtime never hears of the call. ctx is the call's
// own. request must not be kept or changed.
type Edit func(ctx context.Context, request []byte) (suffix []byte, err error)

// Limit is how long the first request of a method may be. One that is longer is not held any longer
// than it takes to refuse it.
type Limit struct {
	Bytes int
	// Refuse returns the call's answer for a request that is longer. ctx is the call's own. request
	// must not be kept.
	Refuse func(ctx context.Context, request io.Reader, bytes int) error
}

// Failed is called when a call failed: request is what the edit saw, err the status that the caller
// gets. ctx is the call's own, and may be done. request must not be changed.
type Failed func(ctx context.Context, request []byte, err error)

// Options say what a Proxy does besides passing on.
type Options struct {
	// Edits are the edited methods by full name, such as
	// /runtime.v1.RuntimeService/CreateContainer. The method's first request is edited.
	Edits map[string]Edit
	// Limits are the methods, by full name, whose requests may not have any length.
	Limits map[string]Limit
	// Failed, for edited methods, are called for each call that their edit let pass and that
	// failed, before its caller hears of it.
	Failed map[string]Failed
	// Unary are methods, by full name, that have one request and one reply. Naming a method here
	// makes its calls cheaper and changes nothing else; all others pass as streams, which any call
	// is.
	Unary map[string]bool
	// Observe, if set, is called for every call when it ends, from many goroutines.
	Observe func(Call)
}

// Proxy is a gRPC server that answers with what the runtime answers.
type Proxy struct {
	upstream *grpc.ClientConn
	options  Options
	server   *grpc.Server
	// ending is done when streams are to end; end makes it so.
	ending context.Context
	end    context.CancelFunc
	// requests counts the goroutines that carry requests upstream. One may outlive its call by the
	// moment that the transport needs to cancel it.
	requests sync.WaitGroup
	// receiving has a slot for each call of a limited method whose request is being received.
	receiving chan struct{}
}

// receivers is how many requests of limited methods are received at a time: as many as there may be
// in memory with any length.
const receivers = 4

// New returns a proxy in front of upstream, which stays the caller's to close after Shutdown.
func New(upstream *grpc.ClientConn, options Options) *Proxy {
	p := &Proxy{upstream: upstream, options: options, receiving: make(chan struct{}, receivers)}
	p.ending, p.end = context.WithCancel(context.Background())
	p.server = grpc.NewServer(
		grpc.ForceServerCodecV2(rawCodec{}),
		grpc.UnknownServiceHandler(p.serveCall),
		grpc.MaxRecvMsgSize(math.MaxInt),
		grpc.MaxSendMsgSize(math.MaxInt),
		grpc.WaitForHandlers(true),
		grpc.WriteBufferSize(chunk),
		experimental.BufferPool(newFramePool()),
		// How often a client pings is between it and the runtime.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Nanosecond,
			PermitWithoutStream: true}),
	)
	return p
}

// Serve answers calls on listener until Shutdown, and then returns nil. It closes listener.
func (p *Proxy) Serve(listener net.Listener) error {
	return p.server.Serve(listener)
}

// streamLimit is how long streams may go on during a shutdown. Those that end by themselves, such
// as lists in parts, take less; the stream of all containers' events never does, and whoever waits
// for this process to end should not wait for that.
const streamLimit = 2 * time.Second

// errEnding ends streams that would go on for ever. The kubelet opens them again, at whoever serves
// the socket then.
var errEnding = status.Error(codes.Unavailable, "kubecri ends; call again")

// Shutdown takes no new calls and waits for those in flight until ctx is done; then it cancels
// them. Calls of methods that are not known to be unary are ended with Unavailable before that,
// after streamLimit. It returns when no goroutine of the proxy is left.
func (p *Proxy) Shutdown(ctx context.Context) {
	defer p.end()
	endStreams := time.AfterFunc(streamLimit, p.end)
	defer endStreams.Stop()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		p.server.GracefulStop()
	}()
	select {
	case <-drained:
	case <-ctx.Done():
		p.server.Stop()
		<-drained
	}
	p.requests.Wait()
}
