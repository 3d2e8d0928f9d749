// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package criproxy passes gRPC calls from one Unix socket to another, byte for byte.
//
// It knows no service and no message type. It forwards any method of the kubelet, unary or
// streaming, known or unknown, to the runtime, with metadata, deadline, cancellation and
// half-close, and returns the runtime's headers, messages, trailers, status code and status
// details. It limits the message size only where its options do, and it has back-pressure: a slow
// reader of a stream costs one message and one flow-control window. Of unary methods it receives a
// few large answers at a time, and the others wait at the runtime. It does not answer Unimplemented
// by itself, which the kubelet would remember until its restart; during an outage of the runtime,
// it answers Unavailable.
//
// A method can have an [Editor], which sees the request's bytes before the runtime and may refuse
// the call or append to the request. Appending is an edit because protobuf merges: a repeated
// occurrence of a field extends a repeated field or a map, and merges into a message. The kubelet's
// bytes stay unchanged.
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

// Editor edits the requests of a method. Its methods are called from many goroutines.
type Editor interface {
	// Edit inspects a request before the runtime sees it. It returns bytes to append to the
	// request, or none. An error is the call's answer, and the call does not reach the runtime. ctx
	// is the call's own. Edit must not keep or change request.
	Edit(ctx context.Context, request []byte) (suffix []byte, err error)
	// Failed receives each failed call that Edit admitted, before the caller gets the status:
	// request is the request that Edit saw, err the status. ctx is the call's own, and may be done.
	// Failed must not change request.
	Failed(ctx context.Context, request []byte, err error)
}

// Limit is the maximum length of the first request of a method. The proxy holds a longer one only
// until it has refused it.
type Limit struct {
	Bytes int
	// Refuser answers calls with a longer request.
	Refuser Refuser
}

// Refuser refuses requests of a method. It is called from many goroutines.
type Refuser interface {
	// Refuse returns the call's answer for a request of so many bytes. ctx is the call's own.
	// Refuse must not keep request.
	Refuse(ctx context.Context, request io.Reader, bytes int) error
}

// Options configure a Proxy.
type Options struct {
	// Editors edit the first request of methods, by full name, such as
	// /runtime.v1.RuntimeService/CreateContainer.
	Editors map[string]Editor
	// Limits are the limits of methods, by full name.
	Limits map[string]Limit
	// Unary are methods, by full name, with one request and one reply. Naming a method here makes
	// its calls cheaper and bounds the memory of its replies; the proxy forwards all others as
	// streams, which suits any call.
	Unary map[string]bool
	// Lists are unary methods whose answers are long and need no bound; nil without any. All
	// streams take their connection, too.
	Lists *Lists
	// Metrics, if set, counts calls.
	Metrics Metrics
}

// Lists are methods whose answers the proxy receives at once, on a connection of their own. It
// holds as many as there are calls. So the kubelet must call them for the node, a few at a time,
// and not for each pod or probe.
type Lists struct {
	// Methods are the methods, by full name. They must be in Options.Unary.
	Methods map[string]bool
	// Upstream is the connection for them and for streams: see DialLists. The caller closes it
	// after Shutdown.
	Upstream *grpc.ClientConn
}

// has reports whether a method is one of the lists.
func (l *Lists) has(method string) bool { return l != nil && l.Methods[method] }

// Metrics counts calls.
type Metrics interface {
	// ObserveCall receives every call at its end, from many goroutines.
	ObserveCall(call Call)
}

// Proxy is a gRPC server that answers with the runtime's answers.
type Proxy struct {
	upstream *grpc.ClientConn
	options  Options
	server   *grpc.Server
	// ending is done when streams must end; end ends it.
	ending context.Context
	end    context.CancelFunc
	// requests counts the goroutines that forward requests to the runtime. A goroutine may outlive
	// its call until the transport has cancelled it.
	requests sync.WaitGroup
	// receiving has a slot for each call of a limited method that receives its request.
	receiving chan struct{}
	// answers has slots for large answers of unary methods other than lists.
	answers *answerSlots
}

// receivers is how many requests of limited methods the proxy receives at a time: this bounds the
// requests of any length in memory.
const receivers = 4

// requestWindow is how much of a request the kubelet may send before the proxy receives it, the
// least that grpc accepts. By default grpc lets it grow to 16 MiB, and all requests that wait for a
// receiver would be in memory. For the request that is received, grpc widens it to its length.
const requestWindow = 64 << 10

// workers is how many goroutines serve calls one after the other. A call takes a goroutine of its
// own where they are all busy. The stacks of these have grown already, which takes 8 % off what the
// proxy adds to CreateContainer, both in time and CPU (bench/proxy, against a build without).
const workers = 8

// New returns a proxy for upstream. The caller closes upstream after Shutdown.
func New(upstream *grpc.ClientConn, options Options) *Proxy {
	p := &Proxy{
		upstream: upstream, options: options, receiving: make(chan struct{}, receivers),
		answers: newAnswerSlots(options.Unary),
	}
	p.ending, p.end = context.WithCancel(context.Background())
	p.server = grpc.NewServer(
		grpc.ForceServerCodecV2(rawCodec{}),
		grpc.NumStreamWorkers(workers),
		grpc.UnknownServiceHandler(p.serveCall),
		grpc.MaxRecvMsgSize(math.MaxInt),
		grpc.MaxSendMsgSize(math.MaxInt),
		grpc.WaitForHandlers(true),
		grpc.WriteBufferSize(chunk),
		grpc.StaticStreamWindowSize(requestWindow),
		experimental.BufferPool(newFramePool()),
		// The proxy does not limit the pings of a client.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Nanosecond,
			PermitWithoutStream: true}),
	)
	return p
}

// Serve answers calls on listener until Shutdown, and then returns nil. It closes listener.
func (p *Proxy) Serve(listener net.Listener) error {
	return p.server.Serve(listener)
}

// streamTimeout is how long streams may continue during a shutdown. Streams that end by themselves,
// such as lists in parts, take less; the stream of all containers' events does not end, and must
// not delay the end of this process.
const streamTimeout = 2 * time.Second

// errEnding ends streams that would continue forever. The kubelet opens them again, at the next
// process on the socket.
var errEnding = status.Error(codes.Unavailable, "kubecri ends; call again")

// Shutdown takes no new calls and waits for those in flight until ctx is done; then it cancels
// them. It ends calls of methods other than Unary with Unavailable before that, after
// streamTimeout. It returns when no goroutine of the proxy is left.
func (p *Proxy) Shutdown(ctx context.Context) {
	defer p.end()
	endStreams := time.AfterFunc(streamTimeout, p.end)
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
