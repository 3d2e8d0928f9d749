// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/scheduler/dispatch"
	"github.com/kubedevice/kubedevice/pkg/scheduler/nodestate"
)

// shared is what the profiles of one scheduler have in common.
type shared struct {
	schedulers *dispatch.Set
	nodes      *nodestate.Cache
	clock      clock.Clock
	background *background
	waker      *waker
	// synced reports whether every node of the informer's first list has reached nodes.
	synced func() bool
}

// newShared follows nodes and pods through the informers of the first profile's handle.
func newShared(ctx context.Context, schedulers *dispatch.Set, handle fwk.Handle) (*shared, error) {
	registerMetrics()
	core := handle.SharedInformerFactory().Core().V1()
	clk := clock.RealClock{}
	s := &shared{
		schedulers: schedulers,
		nodes:      nodestate.New(schedulers, core.Nodes().Lister(), clk),
		clock:      clk,
		background: newBackground(ctx),
	}
	s.waker = &waker{background: s.background, clock: clk, activate: func(ctx context.Context) {
		activatePending(ctx, handle, core.Pods().Lister(), s.nodes)
	}}

	registration, err := core.Nodes().Informer().AddEventHandler(s.nodeHandler(ctx))
	if err != nil {
		return nil, fmt.Errorf("follow nodes: %w", err)
	}
	s.synced = registration.HasSynced
	if _, err := core.Pods().Informer().AddEventHandler(s.podHandler(ctx)); err != nil {
		return nil, fmt.Errorf("follow pods: %w", err)
	}
	s.background.run(func(ctx context.Context) { watchPolicies(ctx, handle.ClientSet()) })
	return s, nil
}

func (s *shared) nodeHandler(ctx context.Context) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { s.nodes.Observe(ctx, obj.(*v1.Node)) },
		UpdateFunc: func(_, obj any) { s.nodes.Observe(ctx, obj.(*v1.Node)) },
		DeleteFunc: func(obj any) {
			if node, ok := deleted[*v1.Node](obj); ok {
				s.nodes.Forget(ctx, node)
			}
		},
	}
}

// podHandler drops reservations of pods that go, and tells the plugins that keep counters of their own who holds what.
func (s *shared) podHandler(ctx context.Context) cache.ResourceEventHandler {
	handler := cache.ResourceEventHandlerFuncs{
		DeleteFunc: func(obj any) {
			if pod, ok := deleted[*v1.Pod](obj); ok {
				s.nodes.PodGone(pod.UID)
				s.schedulers.PodGone(ctx, string(pod.UID))
			}
		},
	}
	if s.schedulers.Observes() {
		tell := func(pod *v1.Pod) {
			if allocation, err := deviceinfo.PodAllocation(pod); err == nil {
				s.schedulers.PodHolds(ctx, pod.Spec.NodeName, string(pod.UID), allocation)
			}
		}
		handler.AddFunc = func(obj any) { tell(obj.(*v1.Pod)) }
		handler.UpdateFunc = func(_, obj any) { tell(obj.(*v1.Pod)) }
	}
	return handler
}

// deleted returns the object of a deletion, also where the informer missed the event and has its last known state only.
func deleted[T any](obj any) (T, bool) {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	object, ok := obj.(T)
	return object, ok
}
