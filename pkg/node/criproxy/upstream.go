// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package criproxy

import (
	"fmt"
	"math"
	"net/url"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/experimental"
)

// reconnect limits the backoff to about a second and a half after a restart of the runtime. With
// grpc's default, up to two minutes, the node would lack a runtime long after its restart.
var reconnect = grpc.ConnectParams{
	Backoff: backoff.Config{
		BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second,
	},
	MinConnectTimeout: 3 * time.Second,
}

// window is how much the runtime may send on a connection before the transport has read it, and how
// much of a list before the proxy receives it. A list of a thousand containers is a megabyte: it
// arrives without a wait. With grpc's own 64 KiB the runtime waits for every piece. It costs a
// connection no memory, as the transport reads at once.
const window = 4 << 20

// chunk is the size of reads from the runtime and of writes to the kubelet: four times grpc's own
// size, as large lists then take fewer system calls.
const chunk = 128 << 10

// SocketPath returns the path of a Unix socket in the kubelet's notation: unix:///run/x.sock, or an
// absolute path.
func SocketPath(endpoint string) (string, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return "", fmt.Errorf("endpoint %q: %w", endpoint, err)
	}
	if (u.Scheme != "" && u.Scheme != "unix") || u.Host != "" || !filepath.IsAbs(u.Path) {
		return "", fmt.Errorf("endpoint %q: want a Unix socket such as unix:///run/containerd/containerd.sock",
			endpoint)
	}
	return filepath.Clean(u.Path), nil
}

// Dial returns a connection to the runtime behind the Unix socket at path. It connects in the
// background, and again after each restart of the runtime; during an outage, calls fail with
// Unavailable at once. It does not limit the size of messages: kubelet and runtime have their own
// limits.
func Dial(path string) (*grpc.ClientConn, error) {
	return dial(path, grpc.WithStaticStreamWindowSize(answerWindow), grpc.WithStatsHandler(completions{}))
}

// DialLists is Dial for Options.Lists and for streams: the runtime sends up to window of an answer
// without waiting until the proxy receives it.
func DialLists(path string) (*grpc.ClientConn, error) {
	return dial(path, grpc.WithStaticStreamWindowSize(window))
}

func dial(path string, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("unix://"+path, append(options,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(reconnect),
		grpc.WithIdleTimeout(0),
		grpc.WithNoProxy(),
		grpc.WithStaticConnWindowSize(window),
		grpc.WithReadBufferSize(chunk),
		experimental.WithBufferPool(newFramePool()),
		grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt), grpc.MaxCallSendMsgSize(math.MaxInt)),
	)...)
	if err != nil {
		return nil, fmt.Errorf("connect to the runtime at %s: %w", path, err)
	}
	conn.Connect()
	return conn, nil
}
