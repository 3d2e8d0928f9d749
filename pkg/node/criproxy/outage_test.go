// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package criproxy

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// answers calls until an answer comes, and returns the time. Until then, calls must return
// Unavailable.
func answers(t *testing.T, client *grpc.ClientConn) time.Duration {
	t.Helper()
	began := time.Now()
	for ctx := testContext(t); ; {
		_, err := invoke(ctx, client, "/x.Y/Z", nil)
		if err == nil {
			return time.Since(began)
		}
		if status.Code(err) != codes.Unavailable {
			t.Fatalf("the runtime is coming back: %v, want Unavailable", err)
		}
		<-time.After(10 * time.Millisecond)
	}
}

func TestReconnectsSoonAfterALongOutage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runtime.sock")
	client := startProxy(t, path, Options{})
	// After three seconds, the backoff has its maximum.
	for began := time.Now(); time.Since(began) < 3*time.Second; {
		if _, err := invoke(testContext(t), client, "/x.Y/Z", nil); status.Code(err) != codes.Unavailable {
			t.Fatalf("runtime away: %v, want Unavailable", err)
		}
		<-time.After(50 * time.Millisecond)
	}
	t.Cleanup(startRuntime(t, path, echo))
	// It is at most 1.2 seconds; the rest is for a busy machine.
	if took := answers(t, client); took > 5*time.Second {
		t.Errorf("back after %v", took)
	}
}

func TestHangingRuntimeCostsOnlyTheDeadline(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runtime.sock")
	// It listens, but does not answer.
	hung, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	client := startProxy(t, path, Options{})
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	if _, err := invoke(ctx, client, "/x.Y/Z", nil); status.Code(err) != codes.DeadlineExceeded &&
		status.Code(err) != codes.Unavailable {
		t.Errorf("hung: %v, want DeadlineExceeded or Unavailable", err)
	}
	if err := hung.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the socket is still there: %v", err)
	}
	t.Cleanup(startRuntime(t, path, echo))
	answers(t, client)
}

func TestRuntimeRestartsUnderLoadShowOnlyAsUnavailable(t *testing.T) {
	eachShape(t, func(t *testing.T, options Options) {
		path := filepath.Join(t.TempDir(), "runtime.sock")
		stop := startRuntime(t, path, echo)
		client := startProxy(t, path, options)
		ctx, end := context.WithCancel(t.Context())
		var callers sync.WaitGroup
		var good atomic.Int64
		for range 4 {
			callers.Go(func() {
				for ctx.Err() == nil {
					got, err := invoke(t.Context(), client, "/x.Y/Z", []byte("abc"))
					switch {
					case err == nil && string(got) == "abc":
						good.Add(1)
					case err == nil:
						t.Errorf("got %q, want abc", got)
					case status.Code(err) != codes.Unavailable:
						t.Errorf("got %v, want Unavailable", err)
					}
				}
			})
		}
		more := func() {
			for enough := good.Load() + 20; good.Load() < enough; {
				<-time.After(time.Millisecond)
			}
		}
		for range 5 {
			more()
			stop()
			stop = startRuntime(t, path, echo)
		}
		more()
		end()
		callers.Wait()
		stop()
	}, "/x.Y/Z")
}

func TestClientReconnectsDoNotAffectOthers(t *testing.T) {
	dir := t.TempDir()
	t.Cleanup(startRuntime(t, filepath.Join(dir, "runtime.sock"), echo))
	upstream, err := Dial(filepath.Join(dir, "runtime.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer upstream.Close()
	proxy := New(upstream, Options{Unary: map[string]bool{"/x.Y/Z": true}})
	path := filepath.Join(dir, "kubecri.sock")
	socket := mustListen(t, path)
	served := make(chan error, 1)
	go func() { served <- proxy.Serve(socket) }()
	steady := dialBytes(t, "unix://"+path)
	defer steady.Close()
	for range 50 {
		passing := dialBytes(t, "unix://"+path)
		var callers sync.WaitGroup
		for _, method := range []string{"/x.Y/Z", "/x.Y/Stream"} {
			callers.Go(func() {
				for {
					if _, err := invoke(t.Context(), passing, method, make([]byte, 100_000)); err != nil {
						return
					}
				}
			})
		}
		if _, err := invoke(testContext(t), steady, "/x.Y/Z", []byte("abc")); err != nil {
			t.Errorf("another's call: %v", err)
		}
		passing.Close()
		callers.Wait()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	proxy.Shutdown(ctx)
	if err := <-served; err != nil {
		t.Errorf("serve: %v", err)
	}
}
