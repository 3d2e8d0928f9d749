// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cdi finds out whether the node's container runtime honours CDI devices. A runtime that
// does not ignores them silently, and a container would start without its devices.
//
// The package queries the runtime once for each connection to it, not for each container: a change
// of the version or the configuration needs a restart of the runtime.
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

// ErrUnknown says that the runtime has not answered a query yet.
var ErrUnknown = errors.New("whether the container runtime honours CDI devices is not known yet")

const (
	// queryTimeout is the timeout of a query.
	queryTimeout = 10 * time.Second
	// queryRetryInterval is the time to the next query after a failure.
	queryRetryInterval = time.Second
)

// Support says whether the runtime honours CDI devices. It is safe for concurrent use.
type Support struct {
	mu      sync.Mutex
	err     error
	runtime string
}

// NewSupport returns a Support without a result before Watch.
func NewSupport() *Support { return &Support{err: ErrUnknown} }

// Check returns nil if the runtime honours CDI devices, and otherwise the reason. The error wraps
// ErrUnknown if there is no answer.
func (s *Support) Check() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Runtime returns the name of the runtime as the CRI has it. It is empty while the runtime has not
// answered.
func (s *Support) Runtime() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runtime
}

func (s *Support) set(runtime string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runtime, s.err = runtime, err
}

// Watch queries the runtime behind conn, now and after each loss of the connection, until ctx is
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
		runtime, err := query(ctx, client)
		s.set(runtime, err)
		if errors.Is(err, ErrUnknown) {
			logger.V(4).Info("Cannot determine whether the runtime honours CDI devices", logkey.Reason, err.Error())
			sleep(ctx, queryRetryInterval)
			continue
		}
		logger.V(2).Info("Queried the runtime about CDI devices", logkey.Honoured, err == nil,
			logkey.Reason, fmt.Sprint(err))
		conn.WaitForStateChange(ctx, connectivity.Ready)
		s.set("", ErrUnknown)
	}
}

// Query queries the runtime, and returns the result that Check of a Support returns after it.
func Query(ctx context.Context, client runtimeapi.RuntimeServiceClient) error {
	_, err := query(ctx, client)
	return err
}

// query is Query that returns the runtime's name, if the runtime answers, as well.
func query(ctx context.Context, client runtimeapi.RuntimeServiceClient) (runtime string, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	version, err := client.Version(ctx, &runtimeapi.VersionRequest{})
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	runtime = version.GetRuntimeName()
	if err := checkVersion(runtime, version.GetRuntimeVersion()); err != nil || runtime != Containerd {
		return runtime, err
	}
	status, err := client.Status(ctx, &runtimeapi.StatusRequest{Verbose: true})
	if err != nil {
		return runtime, fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return runtime, checkConfig(status.GetInfo()["config"])
}

// sleep waits for d or until ctx is done.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
