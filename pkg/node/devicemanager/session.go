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
	"sync"
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

// maxSocketPath is how many bytes the path of a socket has at most, on Linux.
const maxSocketPath = 107

// session is one registration of a plugin, until its stream ends. A plugin that registers again has
// another one, so that nothing that is late in the first is mistaken for news.
type session struct {
	resource types.ResourceName
	socket   string
	conn     *grpc.ClientConn
	plugin   pluginapi.DevicePluginClient
	preStart bool          // it requires PreStartContainer
	file     os.FileInfo   // of its socket; nil if that could not be read
	ended    chan struct{} // closed when its stream and its calls have ended
	calls    callGroup     // of Allocate
	last     *deviceList   // its last valid list, nil before the first; guarded by the manager's mu
}

// isAt reports whether both sessions are with the plugin that made one and the same socket. Another
// instance that serves at the same path has made another socket there.
func (s *session) isAt(other *session) bool {
	return s.socket == other.socket && s.file != nil && other.file != nil &&
		os.SameFile(s.file, other.file) && s.file.ModTime().Equal(other.file.ModTime())
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
	if s.file, err = os.Lstat(socket); err != nil {
		s.file = nil // it was removed meanwhile
	}
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

// close ends the session. What is in flight fails.
func (s *session) close() {
	// A connection that is closed already has nothing more to close.
	_ = s.conn.Close()
}

// finish closes the session and waits for its calls. Those that begin later fail at once.
func (s *session) finish() {
	s.close()
	s.calls.wait()
	close(s.ended)
}

// callGroup is goroutines that may begin at any time, also while their owner waits for them.
type callGroup struct {
	mu      sync.Mutex
	running int
	idle    chan struct{} // closed when none runs and the owner waits; nil while the owner does not
}

// Go runs fn in a goroutine of its own.
func (g *callGroup) Go(fn func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running++
	go func() {
		fn()
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.running--; g.running == 0 && g.idle != nil {
			close(g.idle)
			g.idle = nil
		}
	}()
}

// wait returns when none runs.
func (g *callGroup) wait() {
	g.mu.Lock()
	if g.running == 0 {
		g.mu.Unlock()
		return
	}
	g.idle = make(chan struct{})
	idle := g.idle
	g.mu.Unlock()
	<-idle
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
