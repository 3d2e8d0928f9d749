// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package criproxy

import (
	"bytes"
	"context"
	"io"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const limitedMethod = "/x.Y/Limited"

// refuser refuses a request with its first three bytes and its length.
type refuser struct{}

func (refuser) Refuse(_ context.Context, request io.Reader, length int) error {
	start := make([]byte, 3)
	if _, err := io.ReadFull(request, start); err != nil {
		return err
	}
	return status.Errorf(codes.FailedPrecondition, "%s has %d bytes", start, length)
}

// limitedTo limits limitedMethod, and an edited method as well.
func limitedTo(limit int) Options {
	return Options{
		Editors: map[string]Editor{
			editedMethod: edit(func(context.Context, []byte) ([]byte, error) { return []byte("+"), nil }),
		},
		Limits: map[string]Limit{limitedMethod: {limit, refuser{}}, editedMethod: {limit, refuser{}}},
	}
}

func TestARequestAboveItsMethodsLimitIsRefusedAndAnyOtherPasses(t *testing.T) {
	for name, unary := range map[string]map[string]bool{
		"as streams": nil, "as unary calls": {limitedMethod: true, editedMethod: true},
	} {
		var reached atomic.Int32
		options := limitedTo(1000)
		options.Unary = unary
		client := startBoth(t, func(method string, stream grpc.ServerStream) error {
			reached.Add(1)
			return echo(method, stream)
		}, options)
		within, above := bytes.Repeat([]byte("abc"), 333), bytes.Repeat([]byte("abc"), 334)
		for method, suffix := range map[string]string{limitedMethod: "", editedMethod: "+", "/x.Y/Other": ""} {
			got, err := invoke(testContext(t), client, method, within)
			if err != nil || string(got) != string(within)+suffix {
				t.Errorf("%s, %s within the limit: %d bytes, %v", name, method, len(got), err)
			}
			before := reached.Load()
			got, err = invoke(testContext(t), client, method, above)
			switch method {
			case "/x.Y/Other":
				if err != nil || len(got) != len(above) {
					t.Errorf("%s, %s without a limit: %d bytes, %v", name, method, len(got), err)
				}
			default:
				answer := status.Convert(err)
				if answer.Code() != codes.FailedPrecondition || answer.Message() != "abc has 1002 bytes" {
					t.Errorf("%s, %s above the limit: %v", name, method, err)
				}
				if reached.Load() != before {
					t.Errorf("%s: the runtime heard of a call that was refused", name)
				}
			}
		}
	}
}

// A request that the kubelet sends slowly, or not to its end, must not be in the way for ever.
func TestACallThatWaitsToBeReceivedEndsWithItsCaller(t *testing.T) {
	client := startBoth(t, echo, limitedTo(1000))
	ctx, cancel := context.WithCancel(testContext(t))
	for range receivers {
		if _, err := client.NewStream(ctx, streamShape, limitedMethod); err != nil {
			t.Fatal(err)
		}
	}
	ended := make(chan error, 1)
	go func() {
		_, err := invoke(ctx, client, limitedMethod, []byte("abc"))
		ended <- err
	}()
	cancel()
	if err := <-ended; status.Code(err) != codes.Canceled {
		t.Error(err)
	}
	if _, err := invoke(testContext(t), client, limitedMethod, []byte("abc")); err != nil {
		t.Error("when they have ended:", err)
	}
}

func TestManyRequestsAboveTheLimitTakeTheMemoryOfAFew(t *testing.T) {
	const callers, size = 25, 4 << 20
	client := startBoth(t, echo, limitedTo(1000))
	request := bytes.Repeat([]byte("abc"), size/3)
	used := peakDuring(func() {
		var calling sync.WaitGroup
		for range callers {
			calling.Go(func() {
				_, err := invoke(testContext(t), client, limitedMethod, request)
				if status.Code(err) != codes.FailedPrecondition {
					t.Errorf("got %v", err)
				}
			})
		}
		calling.Wait()
	})
	// Each of them is held once by the caller's transport, too.
	if used > callers*size*7/8 {
		t.Errorf("%d MiB at the peak", used>>20)
	}
	t.Logf("%d MiB at the peak", used>>20)
}

// peakDuring returns by how many bytes do increases the memory in use by client, proxy and runtime
// together, at most.
func peakDuring(do func()) int64 {
	before := heap()
	peak := before
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				peak = max(peak, heap())
			}
		}
	})
	do()
	close(done)
	watching.Wait()
	return peak - before
}
