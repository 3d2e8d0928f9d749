// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// maxMessage is the largest list that a plugin may send, in bytes.
const maxMessage = 16 << 20

// maxSocketPath is how many bytes the path of a socket has at most, on Linux.
const maxSocketPath = 107

// Dial returns a connection to the socket, which need not be there yet.
func Dial(socket string) (*grpc.ClientConn, error) {
	// gRPC would parse the path as a URL.
	to := func(ctx context.Context, _ string) (net.Conn, error) { return DialSocket(ctx, socket) }
	return grpc.NewClient("passthrough:///localhost", grpc.WithContextDialer(to),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2,
				MaxDelay: time.Second},
			MinConnectTimeout: time.Second,
		}),
	)
}

// DialSocket connects to a socket whose path may be longer than an address can be: a plugin may
// need all bytes that the kubelet's directory leaves, as Intel's for FPGAs does.
func DialSocket(ctx context.Context, path string) (net.Conn, error) {
	if len(path) > maxSocketPath {
		directory, err := os.Open(filepath.Dir(path))
		if err != nil {
			return nil, err
		}
		defer directory.Close() //nolint:errcheck // opened for reading
		path = fmt.Sprintf("/proc/self/fd/%d/%s", directory.Fd(), filepath.Base(path))
	}
	return (&net.Dialer{}).DialContext(ctx, "unix", path)
}

// Reason returns what the error of a call says, without gRPC's words.
func Reason(err error) error {
	s, ok := status.FromError(err)
	if !ok {
		return err
	}
	if s.Code() == codes.DeadlineExceeded {
		return errors.New("no answer in time")
	}
	return errors.New(s.Message())
}
