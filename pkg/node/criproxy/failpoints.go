// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package criproxy

import (
	"google.golang.org/grpc"

	"github.com/kubedevice/kubedevice/pkg/node/failpoint"
)

// withFailpoints wraps both sides of a call so that it reaches failpoints. edited says that the
// call's request was edited. It is only for builds with failpoints.
func withFailpoints(down grpc.ServerStream, up grpc.ClientStream, edited bool) (grpc.ServerStream, grpc.ClientStream) {
	if edited {
		up = runtimeFailpoints{up}
	}
	return &kubeletFailpoints{ServerStream: down, edited: edited}, up
}

// runtimeFailpoints is the runtime's side of an edited call.
type runtimeFailpoints struct{ grpc.ClientStream }

func (r runtimeFailpoints) SendMsg(message any) error {
	err := r.ClientStream.SendMsg(message)
	failpoint.Reach(failpoint.Forwarded)
	return err
}

func (r runtimeFailpoints) RecvMsg(message any) error {
	err := r.ClientStream.RecvMsg(message)
	if err == nil {
		failpoint.Reach(failpoint.Answered)
	}
	return err
}

// kubeletFailpoints is the kubelet's side of any call.
type kubeletFailpoints struct {
	grpc.ServerStream
	edited bool
	sent   int // only the sending goroutine uses it
}

func (r *kubeletFailpoints) SendMsg(message any) error {
	err := r.ServerStream.SendMsg(message)
	if r.sent++; r.sent > 1 {
		failpoint.Reach(failpoint.Streaming)
	}
	if r.edited {
		failpoint.Reach(failpoint.Replied)
	}
	return err
}
