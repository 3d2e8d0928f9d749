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

// stopMargin is how much longer than the pod's grace period the runtime may take to end a
// container.
const stopMargin = 30 * time.Second

// stopPause is the time after a container could not be ended.
const stopPause = time.Second

// ending ends the containers that use devices which are not theirs any more, and releases these
// devices when they have ended. It belongs to one goroutine.
type ending struct {
	Options
	// seen are the containers that were seen to run with the devices of before, since these were
	// replaced. When they have ended nothing else can use the devices: the kubelet creates a
	// container only when the one of before has ended.
	seen map[containerKey]bool

	running  sync.WaitGroup
	mu       sync.Mutex
	stopping map[string]bool // containers that are being ended, by ID
}

type containerKey struct{ podUID, name string }

func newEnding(options Options) *ending {
	return &ending{Options: options, seen: map[containerKey]bool{}, stopping: map[string]bool{}}
}

// wait waits for what was begun.
func (e *ending) wait() { e.running.Wait() }

// round does what is to be done now, and reports whether there is more to do.
func (e *ending) round(ctx context.Context, granted []grants.Allocation) (more bool) {
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
		logger.Error(err, "Containers whose devices were replaced cannot be ended yet; it is tried again")
		return true
	}
	for i := range granted {
		a := &granted[i]
		for name := range a.Leaving {
			if !e.ended(ctx, a, name, states[a.PodUID]) {
				continue
			}
			failpoint.Reach(failpoint.Releasing)
			if err := e.Record.Release(a.PodUID, name); err != nil {
				logger.Error(err, "Devices of before cannot be released yet; it is tried again", logkey.Pod, a.Pod())
				continue
			}
			logger.V(2).Info("A container uses its devices of before no more", logkey.Pod, a.Pod(),
				logkey.Container, name)
		}
	}
	return true
}

// ended reports whether the container uses nothing any more of what it had before. It begins to end
// what does.
func (e *ending) ended(ctx context.Context, a *grants.Allocation, name string, state grants.RuntimeState) bool {
	carries, err := e.Record.Carry(*a, name)
	if err != nil {
		klog.FromContext(ctx).Error(err, "It is not known what a container carries", logkey.Pod, a.Pod(),
			logkey.Container, name)
		return false
	}
	key, next, runs := containerKey{a.PodUID, name}, false, false
	for _, c := range state.Containers {
		switch {
		case c.Name != name:
		case c.Carried == carries:
			next = true
		case !c.Exited:
			runs, e.seen[key] = true, true
			e.stop(ctx, a, c.ID)
		}
	}
	return !runs && (next || e.seen[key])
}

// stop begins to end a container, unless that is under way.
func (e *ending) stop(ctx context.Context, a *grants.Allocation, id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopping[id] {
		return
	}
	e.stopping[id] = true
	pod, _ := e.Pods.Get(a.PodUID)
	grace := time.Duration(pod.Failure.GraceSeconds) * time.Second
	who := a.Pod()
	e.running.Go(func() {
		stopping, cancel := context.WithTimeout(ctx, grace+stopMargin)
		defer cancel()
		err := e.Runtime.Stop(stopping, id, grace)
		if err == nil {
			failpoint.Reach(failpoint.Ended)
		}
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).
				Error(err, "A container whose devices were replaced cannot be ended; it is tried again",
					logkey.Pod, who, logkey.Container, id)
			select {
			case <-time.After(stopPause):
			case <-ctx.Done():
			}
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.stopping, id)
	})
}

// CRI returns the runtime that is reached by the CRI, and whose containers listed has.
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
