// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package criproxy

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bytesCodec sends plain bytes between a test's client and runtime.
type bytesCodec struct{}

func (bytesCodec) Name() string { return "proto" }

func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// edit is an Editor that ignores failed calls.
type edit func(ctx context.Context, request []byte) ([]byte, error)

func (e edit) Edit(ctx context.Context, request []byte) ([]byte, error) { return e(ctx, request) }

func (edit) Failed(context.Context, []byte, error) {}

// handler is a runtime's answer to any call.
type handler func(method string, stream grpc.ServerStream) error

// startRuntime serves handle on the socket at path until stop is called.
func startRuntime(t testing.TB, path string, handle handler) (stop func()) {
	t.Helper()
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(
		grpc.ForceServerCodecV2(bytesCodec{}),
		grpc.MaxRecvMsgSize(64<<20),
		grpc.WaitForHandlers(true),
		grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
			method, _ := grpc.MethodFromServerStream(stream)
			return handle(method, stream)
		}),
	)
	served := make(chan struct{})
	go func() {
		defer close(served)
		server.Serve(listener) //nolint:errcheck // it ends with Stop
	}()
	return func() {
		server.Stop()
		<-served
	}
}

// startProxy starts a proxy for the runtime at path and returns a client of the proxy.
func startProxy(t testing.TB, path string, options Options) *grpc.ClientConn {
	t.Helper()
	_, client := serveProxy(t, path, options)
	return client
}

// serveProxy starts a proxy for the runtime at path and returns it with a client.
func serveProxy(t testing.TB, path string, options Options) (*Proxy, *grpc.ClientConn) {
	t.Helper()
	upstream, err := Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	proxy := New(upstream, options)
	serve := filepath.Join(t.TempDir(), "kubecri.sock")
	listener, err := Listen(serve)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- proxy.Serve(listener) }()
	client := dialBytes(t, "unix://"+serve)
	t.Cleanup(func() {
		client.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		proxy.Shutdown(ctx)
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
		upstream.Close()
	})
	return proxy, client
}

func dialBytes(t testing.TB, target string, more ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	client, err := grpc.NewClient(target, append(more,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(bytesCodec{}), grpc.MaxCallRecvMsgSize(64<<20)))...)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// eachShape runs the test for unknown methods, and for the same methods declared as unary.
func eachShape(t *testing.T, test func(t *testing.T, options Options), methods ...string) {
	t.Run("as a stream", func(t *testing.T) { test(t, Options{}) })
	unary := map[string]bool{}
	for _, method := range methods {
		unary[method] = true
	}
	t.Run("as a unary call", func(t *testing.T) { test(t, Options{Unary: unary}) })
}

// startBoth starts a runtime that answers with handle, and a proxy for it, and returns a client of
// the proxy.
func startBoth(t *testing.T, handle handler, options Options) *grpc.ClientConn {
	t.Helper()
	path := filepath.Join(t.TempDir(), "runtime.sock")
	t.Cleanup(startRuntime(t, path, handle))
	return startProxy(t, path, options)
}

// echo answers each message with itself until the client half-closes.
func echo(_ string, stream grpc.ServerStream) error {
	for {
		var message []byte
		if err := stream.RecvMsg(&message); err != nil {
			return ignoreEOF(err)
		}
		if err := stream.SendMsg(&message); err != nil {
			return err
		}
	}
}

func invoke(ctx context.Context, client *grpc.ClientConn, method string, request []byte,
	options ...grpc.CallOption) ([]byte, error) {
	var reply []byte
	err := client.Invoke(ctx, method, &request, &reply, options...)
	return reply, err
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func numbered(n int) []byte { return fmt.Appendf(nil, "message %d", n) }
