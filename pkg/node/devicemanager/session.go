// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

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

// isSameSocket reports whether both sessions are with the plugin that made one and the same socket.
// Another instance that serves at the same path has made another socket there.
func (s *session) isSameSocket(other *session) bool {
	return s.socket == other.socket && s.file != nil && other.file != nil &&
		os.SameFile(s.file, other.file) && s.file.ModTime().Equal(other.file.ModTime())
}

// connect calls the plugin at the socket back.
func connect(ctx context.Context, resource types.ResourceName, socket string) (*session, error) {
	conn, err := Dial(socket)
	if err != nil {
		return nil, err
	}
	s := &session{
		resource: resource, socket: socket, conn: conn, plugin: pluginapi.NewDevicePluginClient(conn),
		ended: make(chan struct{}),
	}
	if err := s.awaitConnected(ctx); err != nil {
		s.close()
		return nil, fmt.Errorf("no answer from the plugin at %s within %v: %w", socket, dialTimeout, err)
	}
	ctx, cancel := context.WithTimeout(ctx, optionsTimeout)
	defer cancel()
	options, err := s.plugin.GetDevicePluginOptions(ctx, &pluginapi.Empty{}, grpc.WaitForReady(true))
	if err != nil {
		s.close()
		return nil, fmt.Errorf("no answer from the plugin at %s to GetDevicePluginOptions within %v: %w",
			socket, optionsTimeout, Reason(err))
	}
	s.preStart = options.GetPreStartRequired()
	if s.file, err = os.Lstat(socket); err != nil {
		s.file = nil // it was removed meanwhile
	}
	return s, nil
}

// awaitConnected waits until the plugin is connected, for dialTimeout at most.
func (s *session) awaitConnected(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	for state := s.conn.GetState(); state != connectivity.Ready; state = s.conn.GetState() {
		s.conn.Connect()
		if s.conn.WaitForStateChange(ctx, state) {
			continue
		}
		probe, err := DialSocket(context.WithoutCancel(ctx), s.socket)
		if err != nil {
			return err // which says more than that the time is over
		}
		return errors.Join(context.Cause(ctx), probe.Close())
	}
	return nil
}

// follow calls each with every list of devices until the stream ends, and returns why it did.
func (s *session) follow(ctx context.Context, each func([]*pluginapi.Device)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := s.plugin.ListAndWatch(ctx, &pluginapi.Empty{})
	if err != nil {
		return Reason(err)
	}
	for {
		list, err := stream.Recv()
		if err != nil {
			return Reason(err)
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
