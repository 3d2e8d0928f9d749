// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

const (
	// kubeletTimeout is the timeout of the kubelet's answer.
	kubeletTimeout = 10 * time.Second
	// maxAnswer is the largest answer of the kubelet, in bytes.
	maxAnswer = 16 << 20
)

// dial returns a connection to the kubelet's socket. It connects at the first call, and again after
// a restart of the kubelet; until then calls fail at once.
func dial(socket string) (*grpc.ClientConn, error) {
	// grpc would parse a target as a URL.
	to := func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	return grpc.NewClient("passthrough:///localhost", grpc.WithContextDialer(to),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second,
			},
			MinConnectTimeout: time.Second,
		}),
	)
}

// query calls the kubelet behind the socket and returns its answer. Its errors keep their codes;
// Unavailable also names the socket.
func query[Request, Answer any](
	ctx context.Context, socket string, call func(context.Context, Request, ...grpc.CallOption) (Answer, error),
	request Request,
) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, kubeletTimeout)
	defer cancel()
	answer, err := call(ctx, request)
	if status.Code(err) == codes.Unavailable {
		err = status.Errorf(codes.Unavailable,
			"the kubelet does not answer at %s (see kubecri's --root-dir), and only it knows the node's pods: %s; "+
				"try again",
			socket, status.Convert(err).Message())
	}
	return answer, err
}
