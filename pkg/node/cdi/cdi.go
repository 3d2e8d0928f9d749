// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cdi finds out whether the node's container runtime honours CDI devices. One that does not
// ignores them in silence, and a container would start without its devices.
//
// The runtime is queried once for each connection to it, not when containers are created: another
// version, or another configuration, needs a restart of the runtime.
package cdi

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/logkey"
)

// ErrUnknown says that the runtime was not queried yet, or did not answer.
var ErrUnknown = errors.New("whether the container runtime honours CDI devices is not known yet")

const (
	// queryLimit is how long the runtime may take to answer.
	queryLimit = 10 * time.Second
	// queryRetry is the pause after it did not.
	queryRetry = time.Second
)

// Support is whether the runtime honours CDI devices, for any number of readers.
type Support struct {
	mu  sync.Mutex
	err error
}

// NewSupport returns a Support that knows nothing before Watch.
func NewSupport() *Support { return &Support{err: ErrUnknown} }

// Check returns nil if the runtime honours CDI devices, and otherwise why it does not. The error
// wraps ErrUnknown if that is not known.
func (s *Support) Check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *Support) set(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// Watch queries the runtime behind conn, now and whenever the connection was lost, until ctx is
// done.
func (s *Support) Watch(ctx context.Context, conn *grpc.ClientConn) {
	logger := klog.FromContext(ctx)
	client := runtimeapi.NewRuntimeServiceClient(conn)
	for ctx.Err() == nil {
		conn.Connect()
		if state := conn.GetState(); state != connectivity.Ready {
			conn.WaitForStateChange(ctx, state)
			continue
		}
		err := Query(ctx, client)
		s.set(err)
		if errors.Is(err, ErrUnknown) {
			logger.V(4).Info("The runtime did not say whether it honours CDI devices", logkey.Reason, err.Error())
			pause(ctx, queryRetry)
			continue
		}
		logger.V(2).Info("Queried the runtime about CDI devices", logkey.Honoured, err == nil,
			logkey.Reason, fmt.Sprint(err))
		conn.WaitForStateChange(ctx, connectivity.Ready)
		s.set(ErrUnknown)
	}
}

// Query asks the runtime, and returns what Check of a Support that watches it does.
func Query(ctx context.Context, client runtimeapi.RuntimeServiceClient) error {
	ctx, cancel := context.WithTimeout(ctx, queryLimit)
	defer cancel()
	version, err := client.Version(ctx, &runtimeapi.VersionRequest{})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	if err := checkVersion(version.GetRuntimeName(), version.GetRuntimeVersion()); err != nil ||
		version.GetRuntimeName() != containerd {
		return err
	}
	status, err := client.Status(ctx, &runtimeapi.StatusRequest{Verbose: true})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return checkConfig(status.GetInfo()["config"])
}

// pause waits for d or until ctx is done.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
