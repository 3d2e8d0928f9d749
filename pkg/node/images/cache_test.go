// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/node/criproxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// slowRuntime answers calls for large images when the test lets it. Their names begin with "large".
type slowRuntime struct {
	runtime
	proceed chan struct{}
	err     error // of large images

	calls, open, mostOpen atomic.Int64 // for large images without a limit of the answer
	tooLong               atomic.Int64 // calls with a limit
}

func (r *slowRuntime) Invoke(
	_ context.Context, _ string, request, reply any, options ...grpc.CallOption,
) error {
	name := request.(*runtimeapi.ImageStatusRequest).GetImage().GetImage()
	if strings.HasPrefix(name, "large") {
		if slices.ContainsFunc(options, func(option grpc.CallOption) bool {
			limit, is := option.(grpc.MaxRecvMsgSizeCallOption)
			return is && limit.MaxRecvMsgSize <= shortAnswer
		}) {
			r.tooLong.Add(1)
			return status.Error(codes.ResourceExhausted, "larger than max")
		}
		r.calls.Add(1)
		r.mostOpen.Store(max(r.mostOpen.Load(), r.open.Add(1)))
		<-r.proceed
		r.open.Add(-1)
		if r.err != nil {
			return r.err
		}
	}
	proto.Merge(reply.(proto.Message), answerOf(name, containerds))
	return nil
}

func imageOfName(name string) *runtimeapi.ImageSpec { return &runtimeapi.ImageSpec{Image: name} }

func TestAnImageIsReadOnceHoweverManyContainersWaitForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &slowRuntime{proceed: make(chan struct{})}
		c := NewCache(r)
		impatient, cancel := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		waiting.Go(func() {
			if _, err := c.Image(impatient, imageOfName("large")); status.Code(err) != codes.Canceled {
				t.Errorf("the call that was cancelled: %v", err)
			}
		})
		synctest.Wait()
		for range 110 {
			waiting.Go(func() {
				if image, err := c.Image(t.Context(), imageOfName("large")); err != nil || len(image.Variables) != 3 {
					t.Errorf("%v, %v", image, err)
				}
			})
		}
		synctest.Wait()
		cancel()
		synctest.Wait()
		close(r.proceed)
		waiting.Wait()
		if got := r.calls.Load(); got != 1 {
			t.Errorf("%d calls", got)
		}
	})
}

func TestSmallImagesDoNotWaitForLargeOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &slowRuntime{proceed: make(chan struct{})}
		c := NewCache(r)
		var waiting sync.WaitGroup
		for i := range 110 {
			waiting.Go(func() {
				if _, err := c.Image(t.Context(), imageOfName(fmt.Sprint("large", i))); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		begin := time.Now()
		for i := range 10 {
			if _, err := c.Image(t.Context(), imageOfName(fmt.Sprint("small", i))); err != nil {
				t.Error("a small image:", err)
			}
		}
		if waited := time.Since(begin); waited > 0 {
			t.Errorf("small images waited for %v", waited)
		}
		close(r.proceed)
		waiting.Wait()
		if r.mostOpen.Load() != longQueries || r.calls.Load() != 110 {
			t.Errorf("%d large images were read at a time, %d calls", r.mostOpen.Load(), r.calls.Load())
		}
	})
}

func TestAnImageThatTheRuntimeCannotDescribeIsReadOnceInAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &slowRuntime{proceed: make(chan struct{}), err: status.Error(codes.ResourceExhausted, "20 MiB")}
		close(r.proceed)
		c := NewCache(r)
		for _, calls := range []int64{1, 1, 2} {
			if _, err := c.Image(t.Context(), imageOfName("large")); status.Code(err) != codes.ResourceExhausted {
				t.Error(err)
			}
			if got := r.calls.Load(); got != calls {
				t.Errorf("%d calls, want %d", got, calls)
			}
			time.Sleep(failureKept/2 + time.Second) // of the test's clock
		}
		if got := r.tooLong.Load(); got != 1 {
			t.Errorf("%d calls for a short answer", got)
		}
	})
}

// served is an image service with one image.
type served struct {
	runtimeapi.UnimplementedImageServiceServer
	answer *runtimeapi.ImageStatusResponse
	calls  atomic.Int64
}

func (s *served) ImageStatus(
	context.Context, *runtimeapi.ImageStatusRequest,
) (*runtimeapi.ImageStatusResponse, error) {
	s.calls.Add(1)
	return s.answer, nil
}

func TestALongDescriptionIsReadOverGRPCAndItsSizesAreKept(t *testing.T) {
	variable, history := strings.Repeat("x", largestKept+1), strings.Repeat("y", 2*shortAnswer)
	service := &served{answer: answerOf("sha256:0", `{"imageSpec":{"history":[{"created_by":"`+history+
		`"}],"config":{"Env":["A=`+variable+`"]}}}`)}
	path := filepath.Join(t.TempDir(), "socket")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.MaxSendMsgSize(16 << 20))
	runtimeapi.RegisterImageServiceServer(server, service)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) }) // until it is stopped
	defer serving.Wait()
	defer server.Stop()
	conn, err := criproxy.Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c := NewCache(conn)
	for range 10 {
		image, err := c.Image(t.Context(), imageOfName("sha256:0"))
		if err != nil {
			t.Fatal(err)
		}
		if got := image.Contents(&runtimeapi.ContainerConfig{}).Variables; got <= largestKept ||
			!image.LeftOut || len(image.Variables) != 0 {
			t.Errorf("variables of %d bytes, of which %d are kept", got, len(image.Variables))
		}
	}
	if got := service.calls.Load(); got != 2 { // one with a short answer, one with a long one
		t.Errorf("%d calls", got)
	}
}
