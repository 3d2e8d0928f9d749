// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"fmt"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
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
	surveyor   *surveyor

	nodeLister corelisters.NodeLister
	pods       cache.Indexer
	// forecast is the latest: all pods that wait are asked about one event before the next.
	forecast atomic.Pointer[forecast]
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
		nodeLister: core.Nodes().Lister(),
		pods:       core.Pods().Informer().GetIndexer(),
	}
	s.surveyor = newSurveyor(schedulers, s.nodes)
	if err := indexByNode(core.Pods().Informer()); err != nil {
		return nil, fmt.Errorf("index pods by node: %w", err)
	}
	s.waker = &waker{background: s.background, clock: clk, activate: func(ctx context.Context) {
		activatePending(ctx, handle, core.Pods().Lister(), s.nodes)
	}}

	schedulers.OnRetranslation(func() {
		s.forecast.Store(nil)
		s.waker.in(0)
	})

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
		UpdateFunc: func(before, after any) { s.rewritten(before.(*v1.Pod), after.(*v1.Pod)) },
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
		handler.UpdateFunc = func(before, after any) {
			s.rewritten(before.(*v1.Pod), after.(*v1.Pod))
			tell(after.(*v1.Pod))
		}
	}
	return handler
}

// rewritten has pods tried again when the allocation of a bound pod was changed or taken away. No queueing hint can: they
// would be asked about every status of every pod.
func (s *shared) rewritten(before, after *v1.Pod) {
	if before.Spec.NodeName != "" && before.Annotations[deviceinfo.Annotation] != after.Annotations[deviceinfo.Annotation] {
		s.waker.in(0)
	}
}

// deleted returns the object of a deletion, also where the informer missed the event and has its last known state only.
func deleted[T any](obj any) (T, bool) {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	object, ok := obj.(T)
	return object, ok
}
