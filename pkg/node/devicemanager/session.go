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
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// maxMessage is the largest list that a plugin may send, in bytes.
const maxMessage = 16 << 20

// session is one registration of a plugin, until its stream ends. A plugin that registers again has
// another one, so that nothing that is late in the first is mistaken for news.
type session struct {
	resource types.ResourceName
	socket   string
	conn     *grpc.ClientConn
	plugin   pluginapi.DevicePluginClient
	preStart bool          // it requires PreStartContainer
	ended    chan struct{} // closed when its stream has ended
	listed   bool          // it has listed its devices; guarded by the manager's mu
}

// connect calls the plugin at the socket back, within dialLimit.
func connect(ctx context.Context, resource types.ResourceName, socket string) (*session, error) {
	conn, err := dial(socket)
	if err != nil {
		return nil, err
	}
	s := &session{
		resource: resource, socket: socket, conn: conn, plugin: pluginapi.NewDevicePluginClient(conn),
		ended: make(chan struct{}),
	}
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	options, err := s.plugin.GetDevicePluginOptions(ctx, &pluginapi.Empty{}, grpc.WaitForReady(true))
	if err != nil {
		s.close()
		return nil, fmt.Errorf("no answer from the plugin at %s to GetDevicePluginOptions within %v: %w",
			socket, dialLimit, reason(err))
	}
	s.preStart = options.GetPreStartRequired()
	return s, nil
}

// dial returns a connection to the socket, which need not be there yet.
func dial(socket string) (*grpc.ClientConn, error) {
	// gRPC would parse the path as a URL.
	to := func(ctx context.Context, _ string) (net.Conn, error) { return dialSocket(ctx, socket) }
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

// dialSocket connects to a socket whose path may be longer than an address can be: a plugin may
// need all bytes that the kubelet's directory leaves, as Intel's for FPGAs does.
func dialSocket(ctx context.Context, path string) (net.Conn, error) {
	if len(path) > maxSocketPath {
		directory, err := os.Open(filepath.Dir(path))
		if err != nil {
			return nil, err
		}
		defer directory.Close()
		path = fmt.Sprintf("/proc/self/fd/%d/%s", directory.Fd(), filepath.Base(path))
	}
	return (&net.Dialer{}).DialContext(ctx, "unix", path)
}

// follow calls each with every list of devices until the stream ends, and returns why it did.
func (s *session) follow(ctx context.Context, each func([]*pluginapi.Device)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := s.plugin.ListAndWatch(ctx, &pluginapi.Empty{})
	if err != nil {
		return reason(err)
	}
	for {
		list, err := stream.Recv()
		if err != nil {
			return reason(err)
		}
		each(list.GetDevices())
	}
}

// alive reports whether the plugin answers.
func (s *session) alive(ctx context.Context) bool {
	select {
	case <-s.ended:
		return false
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, aliveLimit)
	defer cancel()
	_, err := s.plugin.GetDevicePluginOptions(ctx, &pluginapi.Empty{})
	return err == nil
}

// close ends the session. What is in flight fails.
func (s *session) close() {
	// A connection that is closed already has nothing more to close.
	_ = s.conn.Close()
}

// reason returns what the error of a call says, without gRPC's words.
func reason(err error) error {
	s, ok := status.FromError(err)
	if !ok {
		return err
	}
	if s.Code() == codes.DeadlineExceeded {
		return errors.New("no answer in time")
	}
	return errors.New(s.Message())
}
