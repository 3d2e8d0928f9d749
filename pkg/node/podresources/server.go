// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podresources serves the kubelet's PodResources API for all devices of a node. Exporters
// and other agents mount the directory of its socket in place of the kubelet's.
//
// # Answers
//
// The server forwards each call to the kubelet's own socket and completes the kubelet's answer. The
// kubelet decides which pods and containers the answer lists: active pods, with their containers
// and restartable init containers (sidecars). The server does not change CPUs, memory, dynamic
// resources, devices of plugins that register with the kubelet, and fields of a newer kubelet. It
// adds to each container the devices that this node has granted, and to the allocatable devices the
// node's healthy ones. If the kubelet counts a resource whose devices kubecri allocates, the answer
// omits the kubelet's entries of the resource: their IDs have no meaning.
//
// A pod is granted its devices when its first container is created. The kubelet lists a pod's
// devices from its admission on, and network plugins read them while the pod's sandbox is created.
// So the server adds to a pod that has no grant yet the devices of its allocation, if this node
// would grant it now. This grants nothing. A pod that the kubelet knows first is waited for, for
// unknownTimeout at most.
//
// The kubelet identifies pods by name in this API, and the checkpoint of grants by UID. Of several
// grants to pods of one name, the grant of the pod in the API server counts. A grant to a pod that
// has terminated or is deleted does not count, even while its containers are still ending. A pod
// that is being deleted may still hold its devices, so its grant counts; until the API server's
// watch has delivered the deletion, that is so for the next pod of its name, too.
//
// While the kubelet does not answer or is stopped, a call returns Unavailable, as a partial list of
// devices would be wrong. The server forwards other errors of the kubelet. One is the error of its
// rate limit, 100 calls a second with a burst of ten for all its clients, which therefore applies
// to this socket, too.
//
// # Names
//
// A device of a kubelet device plugin has the resource and the ID that the plugin reports. A device
// of a plugin file has the extended resource that its plugin publishes, and the instance of its
// lowest level as its ID: GPU-7f3a for resource/group/gpugrp0/0/gpu/GPU-7f3a/cards. The answer
// lists it once for any number of held resources. If the plugin publishes several extended
// resources, the one named like the level counts, such as example.com/gpu for gpu. Without such a
// resource, the API has no name for the device, and the answer omits it. NUMA nodes are those of
// the level "numa", see package kubeletdevice. As with the kubelet, each device is a separate
// entry, and a device on two NUMA nodes is two entries.
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

	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/node/criproxy"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
)

// The kubelet's directory of this kind, below its root directory, and the socket in it.
const (
	DirName    = "pod-resources"
	SocketName = "kubelet.sock"
)

// dirMode is the kubelet's.
const dirMode = 0o750

// maxSocketPath is the longest path of the socket, in bytes: Linux's 107, less the suffix of its
// temporary name.
const maxSocketPath = 99

// serveRetry is the delay before the next try to serve.
const serveRetry = time.Second

// Options configure a server. All are required.
type Options struct {
	// Socket is the path to serve, for root only. Its directory is created if it is missing.
	Socket string
	// Kubelet is the path of the kubelet's own socket.
	Kubelet string
	// Synced are closed when Grants and Devices are complete; Run does not serve before.
	Synced []<-chan struct{}
	// Grants has the grants of this node.
	Grants Grants
	// Claims has the devices of pods without a grant.
	Claims Claims
	// Pods knows the pods of this node.
	Pods Pods
	// Devices has the node's devices.
	Devices Source
}

// Grants has the granted allocations. *grants.Checkpoint implements it.
type Grants interface {
	// Follow returns the grants, whether they are known to be all, and a channel that is closed
	// when any of this changes.
	Follow() (list []grants.Allocation, complete bool, changed <-chan struct{})
}

// Claims knows what pods without a grant will be granted. *admission.Admission implements it.
type Claims interface {
	// Claimed returns what those of the pods that granted does not have would be granted now. It
	// omits pods that would be granted nothing, and does not wait.
	Claimed(podUIDs []string, granted []grants.Allocation) []grants.Allocation
}

// Source has the node's devices.
type Source interface {
	// Devices returns the current devices.
	Devices() Devices
}

// errNotSynced is the initial state.
var errNotSynced = errors.New(
	"pod resources are not served yet: the checkpoint of grants is not read, or not all device " +
		"plugins have reported")

// Server serves the PodResources API. All methods are safe for concurrent use.
type Server struct {
	options Options
	unknown unknownPods

	mu    sync.Mutex
	state error // nil while it serves
}

// New returns a server; call Run.
func New(options Options) *Server { return &Server{options: options, state: errNotSynced} }

// Run serves until ctx is done, with retries, and returns when no call is in flight.
func (s *Server) Run(ctx context.Context) {
	for _, synced := range s.options.Synced {
		select {
		case <-synced:
		case <-ctx.Done():
			return
		}
	}
	logged := ""
	for ctx.Err() == nil {
		err := s.serve(ctx)
		if err == nil {
			continue
		}
		s.setState(err)
		if err.Error() != logged {
			logged = err.Error()
			klog.FromContext(ctx).Error(err, "Cannot serve pod resources; will retry")
		}
		timer := time.NewTimer(serveRetry)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// Check returns an error while clients cannot call the server.
func (s *Server) Check(ctx context.Context) error {
	s.mu.Lock()
	state := s.state
	s.mu.Unlock()
	if state == nil && !criproxy.Served(ctx, s.options.Socket) {
		return fmt.Errorf("pod resources cannot be called: %s was removed; restart kubecri", s.options.Socket)
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
		return fmt.Errorf(
			"pod resources: the path of a socket may have %d bytes, and %s has %d; choose a shorter directory",
			maxSocketPath, s.options.Socket, length)
	}
	conn, err := dial(s.options.Kubelet)
	if err != nil {
		return fmt.Errorf("pod resources: connect to the kubelet at %s: %w", s.options.Kubelet, err)
	}
	defer conn.Close()
	if err := os.MkdirAll(filepath.Dir(s.options.Socket), dirMode); err != nil {
		return fmt.Errorf("pod resources: %w", err)
	}
	listener, err := criproxy.Listen(s.options.Socket)
	if err != nil {
		return fmt.Errorf("pod resources: %w", err)
	}
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	podresourcesapi.RegisterPodResourcesListerServer(server,
		&lister{kubelet: s.options.Kubelet, client: podresourcesapi.NewPodResourcesListerClient(conn), server: s})
	alphaapi.RegisterPodResourcesListerServer(server,
		&alphaLister{kubelet: s.options.Kubelet, client: alphaapi.NewPodResourcesListerClient(conn), server: s})
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	s.setState(nil)
	klog.FromContext(ctx).Info("Serving pod resources", logkey.Endpoint, s.options.Socket,
		logkey.Kubelet, s.options.Kubelet)
	if err := server.Serve(listener); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve pod resources at %s: %w", s.options.Socket, err)
	}
	// Serve returns before Stop; after Stop no call is in flight.
	server.Stop()
	return nil
}

// holdings returns the devices that pods hold, and will hold when they start. The answer is for the
// pods that the kubelet lists.
func (s *Server) holdings(ctx context.Context, listed listing) holdings {
	current := s.awaitKnown(ctx, listed)
	granted, complete, _ := s.options.Grants.Follow()
	if complete { // otherwise other pods may hold what a pod claims
		if uids := claimants(current, granted, listed); len(uids) > 0 {
			granted = append(granted, s.options.Claims.Claimed(uids, granted)...)
		}
	}
	return newHoldings(granted, s.options.Pods, s.options.Devices.Devices())
}
