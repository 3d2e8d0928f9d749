// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/node/failpoint"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
)

// stopMargin is the time that the runtime may take to end a container beyond the pod's grace
// period.
const stopMargin = 30 * time.Second

// stopBackoff is the time to the next try after the runtime failed to end a container.
const stopBackoff = time.Second

// stopper ends the containers that use their previous devices, and releases these devices when the
// containers have ended. It belongs to one goroutine.
type stopper struct {
	Options
	// seen are the containers that ran with their previous devices after the replacement. When they
	// have ended nothing else can use these devices: the kubelet creates a container only after the
	// previous one has ended.
	seen map[containerKey]bool

	running  sync.WaitGroup
	mu       sync.Mutex
	stopping map[string]bool // containers that are ending, by ID
}

type containerKey struct{ podUID, name string }

func newStopper(options Options) *stopper {
	return &stopper{Options: options, seen: map[containerKey]bool{}, stopping: map[string]bool{}}
}

// wait waits for the calls of Stop.
func (e *stopper) wait() { e.running.Wait() }

// reconcile ends containers and releases devices, and reports whether some still have to end.
func (e *stopper) reconcile(ctx context.Context, granted []grants.Allocation) (more bool) {
	leaving := map[containerKey]bool{}
	for i := range granted {
		for name := range granted[i].Leaving {
			leaving[containerKey{granted[i].PodUID, name}] = true
		}
	}
	for key := range e.seen {
		if !leaving[key] {
			delete(e.seen, key)
		}
	}
	if len(leaving) == 0 {
		return false
	}
	logger := klog.FromContext(ctx)
	states, err := e.Runtime.Pods(ctx)
	if err != nil {
		logger.Error(err, "Cannot list the containers whose devices were replaced; will retry")
		return true
	}
	for i := range granted {
		a := &granted[i]
		for name := range a.Leaving {
			if !e.hasStopped(ctx, a, name, states[a.PodUID]) {
				continue
			}
			failpoint.Reach(failpoint.Releasing)
			if err := e.Checkpoint.Release(a.PodUID, name); err != nil {
				logger.Error(err, "Cannot release previous devices; will retry", logkey.Pod, a.Pod())
				continue
			}
			logger.V(2).Info("Released the previous devices of a container", logkey.Pod, a.Pod(),
				logkey.Container, name)
		}
	}
	return true
}

// hasStopped reports whether the container has stopped using its previous devices. It begins to end
// a container that uses them.
func (e *stopper) hasStopped(ctx context.Context, a *grants.Allocation, name string, state grants.RuntimeState) bool {
	encoded, err := e.Checkpoint.EncodePart(*a, name)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot encode the allocation of a container", logkey.Pod, a.Pod(),
			logkey.Container, name)
		return false
	}
	key, next, runs := containerKey{a.PodUID, name}, false, false
	for _, c := range state.Containers {
		switch {
		case c.Name != name:
		case c.Encoded == encoded:
			next = true
		case !c.Exited:
			runs, e.seen[key] = true, true
			e.stop(ctx, a, c.ID)
		}
	}
	return !runs && (next || e.seen[key])
}

// stop begins to end a container, unless that has begun.
func (e *stopper) stop(ctx context.Context, a *grants.Allocation, id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopping[id] {
		return
	}
	e.stopping[id] = true
	pod, _ := e.Pods.Get(a.PodUID)
	grace := time.Duration(pod.Failure.GraceSeconds) * time.Second
	podName := a.Pod()
	e.running.Go(func() {
		stopping, cancel := context.WithTimeout(ctx, grace+stopMargin)
		defer cancel()
		err := e.Runtime.Stop(stopping, id, grace)
		if err == nil {
			failpoint.Reach(failpoint.Ended)
		}
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).
				Error(err, "Cannot end a container whose devices were replaced; will retry",
					logkey.Pod, podName, logkey.Container, id)
			select {
			case <-time.After(stopBackoff):
			case <-ctx.Done():
			}
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.stopping, id)
	})
}

// CRI returns the runtime behind a CRI connection, with the containers of listed.
func CRI(conn grpc.ClientConnInterface, listed grants.Runtime) Runtime {
	return cri{listed, runtimeapi.NewRuntimeServiceClient(conn)}
}

type cri struct {
	grants.Runtime
	client runtimeapi.RuntimeServiceClient
}

// Stop implements Runtime.
func (c cri) Stop(ctx context.Context, id string, grace time.Duration) error {
	_, err := c.client.StopContainer(ctx, &runtimeapi.StopContainerRequest{
		ContainerId: id, Timeout: int64(grace / time.Second),
	})
	if err != nil {
		return fmt.Errorf("stop container %s: %w", id, err)
	}
	return nil
}
