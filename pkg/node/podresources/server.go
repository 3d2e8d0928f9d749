// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"
	"k8s.io/klog/v2"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
	alphaapi "k8s.io/kubelet/pkg/apis/podresources/v1alpha1"

	"github.com/kubedevice/kubedevice/pkg/node/criproxy"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
)

// The kubelet's folder of this kind, below its root folder, and the socket in it.
const (
	FolderName = "pod-resources"
	SocketName = "kubelet.sock"
)

// folderMode is the kubelet's.
const folderMode = 0o750

// maxSocketPath is how long the path of the socket may be, in bytes: Linux's 107, less what it is made under before it is renamed.
const maxSocketPath = 99

// serveRetry is the pause before the socket is tried again.
const serveRetry = time.Second

// Options say what a server serves. All are needed.
type Options struct {
	// Socket is the path to serve, for root only. Its folder is made if it is not there.
	Socket string
	// Kubelet is the path of the kubelet's own socket.
	Kubelet string
	// Settled are closed when the functions below tell all that there is; nothing is served before.
	Settled []<-chan struct{}
	// Grants returns what pods were granted on this node.
	Grants func() []grants.Allocation
	// Pods knows the pods of this node.
	Pods Pods
	// Devices returns the node's devices as they are now.
	Devices func() Devices
}

// errSettling is the state at the start.
var errSettling = errors.New("pod resources are not served yet: the record of grants was not read, or not all device plugins have been asked")

// Server serves the PodResources API. All methods are safe for concurrent use.
type Server struct {
	options Options

	mu    sync.Mutex
	state error // nil while it serves
}

// New returns a server; call Run.
func New(options Options) *Server { return &Server{options: options, state: errSettling} }

// Run serves until ctx is done, and returns when no call is under way any more. A socket that cannot be had is tried again.
func (s *Server) Run(ctx context.Context) {
	for _, settled := range s.options.Settled {
		select {
		case <-settled:
		case <-ctx.Done():
			return
		}
	}
	said := ""
	for ctx.Err() == nil {
		err := s.serve(ctx)
		if err == nil {
			continue
		}
		s.setState(err)
		if err.Error() != said {
			said = err.Error()
			klog.FromContext(ctx).Error(err, "Pod resources cannot be served; it is tried again")
		}
		timer := time.NewTimer(serveRetry)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// Check returns an error while nobody can ask the server.
func (s *Server) Check(ctx context.Context) error {
	s.mu.Lock()
	state := s.state
	s.mu.Unlock()
	if state == nil && !criproxy.Served(ctx, s.options.Socket) {
		return fmt.Errorf("pod resources cannot be asked for: %s was removed; restart kubecri", s.options.Socket)
	}
	return state
}

func (s *Server) setState(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = err
}

// serve serves until ctx is done.
func (s *Server) serve(ctx context.Context) error {
	if length := len(s.options.Socket); length > maxSocketPath {
		return fmt.Errorf("pod resources: the path of a socket may have %d bytes, and %s has %d; choose a shorter folder", maxSocketPath, s.options.Socket, length)
	}
	conn, err := dial(s.options.Kubelet)
	if err != nil {
		return fmt.Errorf("pod resources: connect to the kubelet at %s: %w", s.options.Kubelet, err)
	}
	defer conn.Close()
	if err := os.MkdirAll(filepath.Dir(s.options.Socket), folderMode); err != nil {
		return fmt.Errorf("pod resources: %w", err)
	}
	listener, err := criproxy.Listen(s.options.Socket)
	if err != nil {
		return fmt.Errorf("pod resources: %w", err)
	}
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	podresourcesapi.RegisterPodResourcesListerServer(server, &lister{kubelet: s.options.Kubelet, client: podresourcesapi.NewPodResourcesListerClient(conn), now: s.now})
	alphaapi.RegisterPodResourcesListerServer(server, &alphaLister{kubelet: s.options.Kubelet, client: alphaapi.NewPodResourcesListerClient(conn), now: s.now})
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	s.setState(nil)
	klog.FromContext(ctx).Info("Serving pod resources", "endpoint", s.options.Socket, "kubelet", s.options.Kubelet)
	if err := server.Serve(listener); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve pod resources at %s: %w", s.options.Socket, err)
	}
	// Serve returns before Stop does; after this no call is under way.
	server.Stop()
	return nil
}

// now returns who holds what.
func (s *Server) now() holdings {
	return newHoldings(s.options.Grants(), s.options.Pods, s.options.Devices())
}
