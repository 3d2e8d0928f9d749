// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package criproxy

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestShutdownWaitsForUnaryCallsAndEndsStreams(t *testing.T) {
	dir := t.TempDir()
	began, release := make(chan struct{}), make(chan struct{})
	t.Cleanup(startRuntime(t, filepath.Join(dir, "runtime.sock"), func(method string, stream grpc.ServerStream) error {
		if method != unaryMethod {
			if err := stream.SendHeader(nil); err != nil {
				return err
			}
			<-stream.Context().Done()
			return stream.Context().Err()
		}
		close(began)
		<-release
		return echo(method, stream)
	}))
	upstream, err := Dial(filepath.Join(dir, "runtime.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer upstream.Close()
	proxy := New(upstream, knownUnary)
	path := filepath.Join(dir, "kubecri.sock")
	socket := mustListen(t, path)
	served := make(chan error, 1)
	go func() { served <- proxy.Serve(socket) }()
	client := dialBytes(t, "unix://"+path)
	defer client.Close()

	stream := openStream(testContext(t), t, client)
	if _, err := stream.Header(); err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		_, err := invoke(testContext(t), client, unaryMethod, []byte("abc"))
		answered <- err
	}()
	<-began
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		proxy.Shutdown(ctx)
	}()
	var message []byte
	if err := stream.RecvMsg(&message); status.Code(err) != codes.Unavailable ||
		status.Convert(err).Message() != status.Convert(errEnding).Message() {
		t.Errorf("the stream: %v, want %v", err, errEnding)
	}
	select {
	case <-ended:
		t.Error("the shutdown did not wait for the call in flight")
	case err := <-answered:
		t.Errorf("the call in flight was ended: %v", err)
	default:
	}
	close(release)
	if err := <-answered; err != nil {
		t.Errorf("the call in flight: %v", err)
	}
	<-ended
	if err := <-served; err != nil {
		t.Errorf("serve: %v", err)
	}
}
