// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package criproxy

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

const otherUnaryMethod = "/x.Y/OtherUnary"

var bothUnary = Options{Unary: map[string]bool{unaryMethod: true, otherUnaryMethod: true}}

// discarding is the codec of a client that reads answers and keeps nothing of them.
type discarding struct{ bytesCodec }

func (discarding) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*int) = data.Len()
	return nil
}

// read invokes a method and returns the length of its answer.
func read(ctx context.Context, client *grpc.ClientConn, method string, request []byte) (length int, err error) {
	err = client.Invoke(ctx, method, &request, &length, grpc.ForceCodecV2(discarding{}))
	return length, err
}

// sized answers each request with as many bytes as it says.
func sized(_ string, stream grpc.ServerStream) error {
	var request []byte
	if err := stream.RecvMsg(&request); err != nil {
		return err
	}
	var size int
	if _, err := fmt.Sscan(string(request), &size); err != nil {
		return err
	}
	answer := zeros[:size]
	return stream.SendMsg(&answer)
}

var zeros = make([]byte, 16<<20)

func TestManyLargeAnswersTakeTheMemoryOfAFew(t *testing.T) {
	const callers, size = 40, 4 << 20
	var called sync.WaitGroup
	called.Add(callers)
	client := startBoth(t, func(method string, stream grpc.ServerStream) error {
		called.Done()
		called.Wait() // so that all answers come at the same time
		return sized(method, stream)
	}, knownUnary)
	used := peakDuring(func() {
		var calling sync.WaitGroup
		for range callers {
			calling.Go(func() {
				length, err := read(testContext(t), client, unaryMethod, fmt.Append(nil, size))
				if err != nil || length != size {
					t.Errorf("an answer of %d bytes, %v", length, err)
				}
			})
		}
		calling.Wait()
	})
	// Each of them is held once by the caller's transport, too, which also keeps buffers.
	if used > callers*size/2 {
		t.Errorf("%d MiB at the peak", used>>20)
	}
	t.Logf("%d MiB at the peak", used>>20)
}

// occupy opens calls with large answers that are never read, until these have all slots of the
// method, and returns their connection to the proxy. Its window does not grow: grpc's own grows
// with the connection's speed, and then takes in answers that are not read.
func occupy(ctx context.Context, t *testing.T, proxy *Proxy, target string) *grpc.ClientConn {
	t.Helper()
	client := dialBytes(t, target, grpc.WithStaticStreamWindowSize(answerWindow))
	t.Cleanup(func() { client.Close() })
	for range largeAnswersEach + 2 {
		stream, err := client.NewStream(ctx, unaryShape, unaryMethod)
		if err != nil {
			t.Fatal(err)
		}
		request := fmt.Append(nil, 4<<20)
		if err := stream.SendMsg(&request); err != nil {
			t.Fatal(err)
		}
	}
	awaitTaken(t, proxy, largeAnswersEach)
	return client
}

// awaitTaken waits until so many slots are taken.
func awaitTaken(t *testing.T, proxy *Proxy, slots int) {
	t.Helper()
	for ctx := testContext(t); len(proxy.answers.all) != slots; {
		select {
		case <-ctx.Done():
			t.Fatalf("%d slots are taken, want %d", len(proxy.answers.all), slots)
		case <-time.After(time.Millisecond):
		}
	}
}

func TestLargeAnswersDelayNeitherSmallOnesNorOtherMethods(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runtime.sock")
	t.Cleanup(startRuntime(t, path, sized))
	proxy, client := serveProxy(t, path, bothUnary)
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	occupy(ctx, t, proxy, client.Target())
	for range 10 { // which ends long before slotTimeout
		for method, size := range map[string]int{unaryMethod: answerWindow / 2, otherUnaryMethod: 1 << 20} {
			if length, err := read(ctx, client, method, fmt.Append(nil, size)); err != nil || length != size {
				t.Fatalf("%s: an answer of %d bytes, %v", method, length, err)
			}
		}
	}
	if taken := len(proxy.answers.each[unaryMethod]); taken != largeAnswersEach {
		t.Errorf("%d slots were taken, want %d: the answers were read", taken, largeAnswersEach)
	}
}

func TestAnAnswerThatWaitsForItsSlotEndsWithItsCaller(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runtime.sock")
	t.Cleanup(startRuntime(t, path, sized))
	proxy, client := serveProxy(t, path, bothUnary)
	occupying, leave := context.WithCancel(testContext(t))
	defer leave()
	occupy(occupying, t, proxy, client.Target())
	ctx, cancel := context.WithCancel(testContext(t))
	ended := make(chan error, 1)
	go func() {
		_, err := read(ctx, client, unaryMethod, fmt.Append(nil, 1<<20))
		ended <- err
	}()
	cancel()
	if err := <-ended; status.Code(err) != codes.Canceled {
		t.Error(err)
	}
	leave()
	awaitTaken(t, proxy, 0)
	if _, err := read(testContext(t), client, unaryMethod, fmt.Append(nil, 16<<20)); err != nil {
		t.Error("when the others have ended:", err)
	}
}

func TestTheSlotsOfAConnectionThatEndsAreFree(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runtime.sock")
	t.Cleanup(startRuntime(t, path, sized))
	proxy, client := serveProxy(t, path, bothUnary)
	occupy(testContext(t), t, proxy, client.Target()).Close()
	awaitTaken(t, proxy, 0)
}

func TestASlotLapsesWhenItsAnswerIsNotReadInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := newAnswerSlots(knownUnary.Unary)
		var releases []func()
		start := time.Now()
		for range largeAnswersEach + 1 {
			release, err := slots.take(t.Context(), unaryMethod, make(completion))
			if err != nil {
				t.Fatal(err)
			}
			releases = append(releases, release)
		}
		if waited := time.Since(start); waited != slotTimeout {
			t.Errorf("the last one has waited for %v, want %v", waited, slotTimeout)
		}
		for _, release := range releases {
			release()
			release()
		}
		synctest.Wait() // for those that lapse at the same time
		if len(slots.all)+len(slots.each[unaryMethod]) > 0 {
			t.Error("slots are taken at the end")
		}
	})
}

func TestListsDoNotWaitForASlot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runtime.sock")
	t.Cleanup(startRuntime(t, path, sized))
	lists, err := DialLists(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lists.Close() })
	options := bothUnary
	options.Lists = &Lists{Methods: map[string]bool{otherUnaryMethod: true}, Upstream: lists}
	proxy, client := serveProxy(t, path, options)
	ctx, cancel := context.WithTimeout(testContext(t), slotTimeout/2) // before the slots lapse
	defer cancel()
	for _, method := range []string{unaryMethod, unaryMethod, unaryMethod, otherUnaryMethod} {
		if _, err := proxy.answers.take(ctx, method, make(completion)); err != nil {
			t.Fatal(err)
		}
	}
	for _, size := range []int{100, answerWindow * 2, window * 2} {
		length, err := read(ctx, client, otherUnaryMethod, fmt.Append(nil, size))
		if err != nil || length != size {
			t.Errorf("a list of %d bytes, %v; want %d", length, err, size)
		}
	}
}

func TestStreamsTakeTheConnectionOfLists(t *testing.T) {
	serveAs := func(name string) (path string) {
		path = filepath.Join(t.TempDir(), "runtime.sock")
		t.Cleanup(startRuntime(t, path, func(_ string, stream grpc.ServerStream) error {
			answer := []byte(name)
			return stream.SendMsg(&answer)
		}))
		return path
	}
	lists, err := DialLists(serveAs("lists"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lists.Close() })
	options := bothUnary
	options.Lists = &Lists{Methods: map[string]bool{otherUnaryMethod: true}, Upstream: lists}
	client := startProxy(t, serveAs("others"), options)
	for method, want := range map[string]string{
		unaryMethod: "others", otherUnaryMethod: "lists", "/test.Service/Stream": "lists",
	} {
		if answer, err := invoke(testContext(t), client, method, nil); err != nil || string(answer) != want {
			t.Errorf("%s takes the connection of %q, %v; want of %q", method, answer, err, want)
		}
	}
}

func TestFreedFramesAreNotifiedOnceNothingReferencesThem(t *testing.T) {
	f := &frame{data: mem.BufferSlice{mem.SliceBuffer("abc")}}
	freed := f.notifyFreed()
	sent, err := rawCodec{}.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	f.free()
	select {
	case <-freed:
		t.Error("freed while it is sent")
	default:
	}
	if got := sent.Materialize(); !bytes.Equal(got, []byte("abc")) {
		t.Errorf("%q is sent", got)
	}
	sent.Free()
	<-freed
}

// BenchmarkUnary measures a unary call by the size of its answer: that of a status, of lists of
// containers, and of the output of an exec probe.
func BenchmarkUnary(b *testing.B) {
	for _, size := range []int{100, 32 << 10, 1 << 20, 15 << 20} {
		b.Run(fmt.Sprintf("%d bytes", size), func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "runtime.sock")
			b.Cleanup(startRuntime(b, path, sized))
			client := startProxy(b, path, knownUnary)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := read(b.Context(), client, unaryMethod, fmt.Append(nil, size)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
