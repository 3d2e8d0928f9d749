// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package criproxy

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestObservesCodeAndRuntimeTimeOfEveryCall(t *testing.T) {
	const slow = 30 * time.Millisecond
	seen := make(chan Call, 1)
	client := startBoth(t, func(method string, stream grpc.ServerStream) error {
		switch method {
		case "/x.Y/Bad":
			return status.Error(codes.DataLoss, "")
		case "/x.Y/SlowRuntime":
			<-time.After(slow)
		}
		return echo(method, stream)
	}, Options{
		Metrics: calls(seen),
		Editors: map[string]Editor{
			"/x.Y/SlowEdit": edit(func(context.Context, []byte) ([]byte, error) {
				<-time.After(slow)
				return nil, nil
			}),
			"/x.Y/Refused": edit(func(context.Context, []byte) ([]byte, error) {
				return nil, status.Error(codes.FailedPrecondition, "")
			}),
		},
	})
	for method, want := range map[string]struct {
		code          codes.Code
		waited, added time.Duration // at least
	}{
		"/x.Y/Good":        {code: codes.OK},
		"/x.Y/Bad":         {code: codes.DataLoss},
		"/x.Y/SlowRuntime": {code: codes.OK, waited: slow},
		"/x.Y/SlowEdit":    {code: codes.OK, added: slow},
		"/x.Y/Refused":     {code: codes.FailedPrecondition},
	} {
		invoke(testContext(t), client, method, nil) //nolint:errcheck // some calls are to fail
		got := <-seen
		if got.Method != method || got.Code != want.code || got.Waited < want.waited ||
			got.Took-got.Waited < want.added {
			t.Errorf("observed %+v, want %s %+v", got, method, want)
		}
		if method == "/x.Y/Refused" && got.Waited > 0 {
			t.Errorf("the call did not reach the runtime, and %v were spent waiting for it", got.Waited)
		}
	}
}

// calls receives the calls.
type calls chan<- Call

func (c calls) ObserveCall(call Call) { c <- call }
