// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package criproxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// randomMessage is a well-formed protobuf message of fields that no schema has.
func randomMessage(source *rand.ChaCha8) []byte {
	random := rand.New(source)
	var message []byte
	for range random.IntN(8) {
		number := protowire.Number(1 + random.IntN(5000))
		switch random.IntN(4) {
		case 0:
			message = protowire.AppendVarint(protowire.AppendTag(message, number, protowire.VarintType),
				random.Uint64())
		case 1:
			message = protowire.AppendFixed32(protowire.AppendTag(message, number, protowire.Fixed32Type),
				random.Uint32())
		case 2:
			message = protowire.AppendFixed64(protowire.AppendTag(message, number, protowire.Fixed64Type),
				random.Uint64())
		default:
			// Mostly short, so that ten thousand messages take seconds under the race detector.
			value := make([]byte, random.IntN(16<<random.IntN(9)))
			source.Read(value)
			message = protowire.AppendBytes(protowire.AppendTag(message, number, protowire.BytesType), value)
		}
	}
	return message
}

// callers is how many goroutines share ten thousand calls: a single one would mostly wait for
// goroutine switches on a busy machine.
const callers = 8

func TestForwardsRandomMessagesOfUnknownMethodsUnchanged(t *testing.T) {
	const known = "/runtime.v1.RuntimeService/ListContainers"
	client := startBoth(t, echo, Options{Unary: map[string]bool{known: true}})
	methods := []string{known, "/runtime.v1.ImageService/PullImage", "/runtime.v9.Future/Invented"}
	ctx := testContext(t)
	var calling sync.WaitGroup
	for caller := range byte(callers) {
		calling.Go(func() {
			source := rand.NewChaCha8([32]byte{1, caller})
			for i := range 10_000 / callers {
				sent := randomMessage(source)
				got, err := invoke(ctx, client, methods[i%len(methods)], sent)
				if err != nil {
					t.Errorf("message %d: %v", i, err)
					return
				}
				if !bytes.Equal(got, sent) {
					t.Errorf("message %d of %d bytes came back changed", i, len(sent))
				}
			}
		})
	}
	calling.Wait()
}

func TestForwardsMessagesBeyondDefaultLimits(t *testing.T) {
	eachShape(t, func(t *testing.T, options Options) {
		client := startBoth(t, echo, options)
		for _, size := range []int{0, 1, 4 << 20, 16 << 20, 33 << 20} {
			sent := bytes.Repeat([]byte{0xa5}, size)
			got, err := invoke(testContext(t), client, "/x.Y/Big", sent, grpc.MaxCallSendMsgSize(64<<20))
			if err != nil {
				t.Fatalf("%d bytes: %v", size, err)
			}
			if !bytes.Equal(got, sent) {
				t.Fatalf("%d bytes came back changed", size)
			}
		}
	}, "/x.Y/Big")
}

func TestForwardsMetadataBothWays(t *testing.T) {
	eachShape(t, func(t *testing.T, options Options) {
		var seen metadata.MD
		client := startBoth(t, func(_ string, stream grpc.ServerStream) error {
			seen, _ = metadata.FromIncomingContext(stream.Context())
			header := metadata.Pairs("from-runtime", "h1", "from-runtime", "h2", "raw-bin", "\x00\xff")
			if err := stream.SetHeader(header); err != nil {
				return err
			}
			stream.SetTrailer(metadata.Pairs("after", "t1", "after-bin", "\x01\x02"))
			return echo("", stream)
		}, options)
		ctx := metadata.AppendToOutgoingContext(testContext(t), "from-kubelet", "a", "from-kubelet", "b", "token-bin",
			"\xfe\x00")
		var header, trailer metadata.MD
		if _, err := invoke(ctx, client, "/x.Y/Z", numbered(1), grpc.Header(&header),
			grpc.Trailer(&trailer)); err != nil {
			t.Fatal(err)
		}
		for _, check := range []struct {
			where string
			md    metadata.MD
			key   string
			want  []string
		}{
			{"request", seen, "from-kubelet", []string{"a", "b"}},
			{"request", seen, "token-bin", []string{"\xfe\x00"}},
			{"header", header, "from-runtime", []string{"h1", "h2"}},
			{"header", header, "raw-bin", []string{"\x00\xff"}},
			{"trailer", trailer, "after", []string{"t1"}},
			{"trailer", trailer, "after-bin", []string{"\x01\x02"}},
		} {
			if diff := cmp.Diff(check.want, check.md.Get(check.key)); diff != "" {
				t.Errorf("%s %s (-want +got):\n%s", check.where, check.key, diff)
			}
		}
	}, "/x.Y/Z")
}

func TestStatusKeepsCodeMessageDetailsAndTrailers(t *testing.T) {
	eachShape(t, func(t *testing.T, options Options) {
		detail := &errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{{Subject: "pod",
			Description: "too many"}}}
		for _, code := range []codes.Code{codes.NotFound, codes.Unimplemented, codes.Internal, codes.Canceled,
			codes.ResourceExhausted, codes.Code(77)} {
			want, err := status.New(code, "container \"x\": größer").WithDetails(detail)
			if err != nil {
				t.Fatal(err)
			}
			client := startBoth(t, func(_ string, stream grpc.ServerStream) error {
				stream.SetTrailer(metadata.Pairs("why", "because"))
				return want.Err()
			}, options)
			var trailer metadata.MD
			_, err = invoke(testContext(t), client, "/x.Y/Z", numbered(1), grpc.Trailer(&trailer))
			got := status.Convert(err)
			if got.Code() != code || got.Message() != want.Message() {
				t.Errorf("got %v %q, want %v %q", got.Code(), got.Message(), code, want.Message())
			}
			if len(got.Details()) != 1 || got.Details()[0].(*errdetails.QuotaFailure).String() != detail.String() {
				t.Errorf("%v: details %v, want %v", code, got.Details(), detail)
			}
			if diff := cmp.Diff([]string{"because"}, trailer.Get("why")); diff != "" {
				t.Errorf("%v: trailer (-want +got):\n%s", code, diff)
			}
		}
	}, "/x.Y/Z")
}

func openStream(ctx context.Context, t *testing.T, client *grpc.ClientConn) grpc.ClientStream {
	t.Helper()
	stream, err := client.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/x.Y/Stream")
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

func send(t *testing.T, stream grpc.ClientStream, message []byte) {
	t.Helper()
	if err := stream.SendMsg(&message); err != nil {
		t.Fatal(err)
	}
}

func receive(t *testing.T, stream grpc.ClientStream) []byte {
	t.Helper()
	var message []byte
	if err := stream.RecvMsg(&message); err != nil {
		t.Fatal(err)
	}
	return message
}

func TestStreamKeepsOrderAndEndsAtHalfClose(t *testing.T) {
	client := startBoth(t, func(_ string, stream grpc.ServerStream) error {
		if err := echo("", stream); err != nil {
			return err
		}
		farewell := []byte("half-closed")
		return stream.SendMsg(&farewell)
	}, Options{})
	stream := openStream(testContext(t), t, client)
	for i := range 100 {
		send(t, stream, numbered(i))
		if got := receive(t, stream); !bytes.Equal(got, numbered(i)) {
			t.Fatalf("got %q, want %q", got, numbered(i))
		}
	}
	stream.CloseSend()
	if got := receive(t, stream); string(got) != "half-closed" {
		t.Errorf("after half-close: %q", got)
	}
	var more []byte
	if err := stream.RecvMsg(&more); !errors.Is(err, io.EOF) {
		t.Errorf("end of stream: %v, want io.EOF", err)
	}
}

func TestHeadersArriveBeforeTheFirstMessage(t *testing.T) {
	client := startBoth(t, func(_ string, stream grpc.ServerStream) error {
		if err := stream.SendHeader(metadata.Pairs("ready", "yes")); err != nil {
			return err
		}
		<-stream.Context().Done()
		return stream.Context().Err()
	}, Options{})
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	stream := openStream(ctx, t, client)
	header, err := stream.Header()
	if err != nil || len(header.Get("ready")) != 1 {
		t.Errorf("header %v, %v", header, err)
	}
}

func TestRuntimeMayEndAStreamEarly(t *testing.T) {
	client := startBoth(t, func(string, grpc.ServerStream) error { return status.Error(codes.OutOfRange, "enough") },
		Options{})
	stream := openStream(testContext(t), t, client)
	var message []byte
	if err := stream.RecvMsg(&message); status.Code(err) != codes.OutOfRange {
		t.Errorf("got %v, want OutOfRange", err)
	}
}

func TestCancellationReachesTheRuntime(t *testing.T) {
	began, ended := make(chan struct{}), make(chan error, 1)
	client := startBoth(t, func(_ string, stream grpc.ServerStream) error {
		close(began)
		<-stream.Context().Done()
		ended <- stream.Context().Err()
		return nil
	}, Options{})
	ctx, cancel := context.WithCancel(testContext(t))
	stream := openStream(ctx, t, client)
	<-began
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the runtime saw %v", err)
	}
	var message []byte
	if err := stream.RecvMsg(&message); status.Code(err) != codes.Canceled {
		t.Errorf("the kubelet saw %v", err)
	}
}

func TestRuntimeGetsTheKubeletsDeadline(t *testing.T) {
	eachShape(t, func(t *testing.T, options Options) {
		left := make(chan time.Duration, 1)
		client := startBoth(t, func(_ string, stream grpc.ServerStream) error {
			deadline, _ := stream.Context().Deadline()
			left <- time.Until(deadline)
			<-stream.Context().Done()
			return stream.Context().Err()
		}, options)
		const limit = 2 * time.Second
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		_, err := invoke(ctx, client, "/x.Y/Slow", nil)
		if status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("got %v, want DeadlineExceeded", err)
		}
		select {
		case got := <-left:
			if got <= 0 || got > limit {
				t.Errorf("the runtime had %v left, want at most %v", got, limit)
			}
		default:
			t.Errorf("the call did not reach the runtime within %v", limit)
		}
	}, "/x.Y/Slow")
}

func TestCallsAreUnavailableDuringAnOutage(t *testing.T) {
	eachShape(t, func(t *testing.T, options Options) {
		path := filepath.Join(t.TempDir(), "runtime.sock")
		client := startProxy(t, path, options)
		ctx := testContext(t)
		for round := range 3 {
			if _, err := invoke(ctx, client, "/x.Y/Z", nil); status.Code(err) != codes.Unavailable {
				t.Fatalf("round %d, runtime away: %v, want Unavailable", round, err)
			}
			stop := startRuntime(t, path, echo)
			for {
				_, err := invoke(ctx, client, "/x.Y/Z", nil)
				if err == nil {
					break
				}
				if status.Code(err) != codes.Unavailable || ctx.Err() != nil {
					t.Fatalf("round %d, runtime back: %v", round, err)
				}
				runtime.Gosched()
			}
			stop()
		}
	}, "/x.Y/Z")
}

func TestStreamsEndWithUnavailableWhenTheRuntimeDies(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runtime.sock")
	stop := startRuntime(t, path, echo)
	stream := openStream(testContext(t), t, startProxy(t, path, Options{}))
	send(t, stream, numbered(1))
	receive(t, stream)
	stop()
	var message []byte
	if err := stream.RecvMsg(&message); status.Code(err) != codes.Unavailable {
		t.Errorf("got %v, want Unavailable", err)
	}
}

// heap returns the memory in use by client, proxy and runtime together.
func heap() int64 {
	debug.FreeOSMemory()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

func TestSlowReaderThrottlesTheRuntime(t *testing.T) {
	const size = 64 << 10
	var sent atomic.Int64
	client := startBoth(t, func(_ string, stream grpc.ServerStream) error {
		message := make([]byte, size)
		for range 1024 {
			if err := stream.SendMsg(&message); err != nil {
				return err
			}
			sent.Add(1)
		}
		return nil
	}, Options{})
	stream := openStream(testContext(t), t, client)
	receive(t, stream)
	before := heap()
	// The runtime is throttled when its count does not change while no client reads.
	for last, still := int64(-1), 0; still < 20; {
		now := sent.Load()
		if now == last && now > 1 { // it has begun
			still++
		} else {
			last, still = now, 0
		}
		<-time.After(5 * time.Millisecond)
	}
	if got := heap() - before; got > 16<<20 {
		t.Errorf("%d MiB of memory are held for a reader that does not read", got>>20)
	}
	if got := sent.Load() * size; got > 16<<20 {
		t.Errorf("%d MiB of 64 were buffered for a reader that does not read", got>>20)
	}
	for range 1023 {
		receive(t, stream)
	}
}

// converse opens a stream, sends a message and receives its echo, and ends the stream, by
// half-closing or by cancelling it.
func converse(ctx context.Context, client *grpc.ClientConn, message []byte, halfClose bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := client.NewStream(ctx, streamShape, "/x.Y/Stream")
	if err != nil {
		return err
	}
	if err := stream.SendMsg(&message); err != nil {
		return err
	}
	var reply []byte
	if err := stream.RecvMsg(&reply); err != nil || !halfClose {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	return ignoreEOF(stream.RecvMsg(&reply))
}

func TestTenThousandStreamsLeaveNoGoroutine(t *testing.T) {
	client := startBoth(t, echo, Options{})
	ctx := testContext(t)
	if err := converse(ctx, client, numbered(0), true); err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	var calling sync.WaitGroup
	for range callers {
		calling.Go(func() {
			for i := range 10_000 / callers {
				if err := converse(ctx, client, numbered(i), i%2 == 0); err != nil {
					t.Errorf("stream %d: %v", i, err)
					return
				}
			}
		})
	}
	calling.Wait()
	for runtime.NumGoroutine() > before+2 {
		if ctx.Err() != nil {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
		runtime.Gosched()
	}
}
