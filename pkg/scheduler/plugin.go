// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scheduler makes the Kubernetes scheduler choose exact devices. It is upstream's command with one more framework
// plugin; each extension point is a file of this package.
//
// The plugin remembers nothing that it can derive: who holds what on a node is computed from the pods of the NodeInfo
// that the framework hands to each call. The exception are allocations that are made but not yet seen on a bound pod.
// Package nodestate has both; package dispatch calls the device schedulers.
package scheduler

import (
	"context"
	"fmt"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/kubedevice/kubedevice/pkg/scheduler/dispatch"
	"github.com/kubedevice/kubedevice/pkg/scheduler/nodestate"
)

// Name is the plugin's name in scheduler configurations, logs and metrics.
const Name = "KubeDevice"

// Plugin is the framework plugin of one profile. What it knows of nodes is shared by all profiles of the process.
type Plugin struct {
	handle fwk.Handle
	*shared
}

var (
	_ fwk.PreFilterPlugin   = (*Plugin)(nil)
	_ fwk.FilterPlugin      = (*Plugin)(nil)
	_ fwk.PreScorePlugin    = (*Plugin)(nil)
	_ fwk.ScorePlugin       = (*Plugin)(nil)
	_ fwk.ReservePlugin     = (*Plugin)(nil)
	_ fwk.BindPlugin        = (*Plugin)(nil)
	_ fwk.EnqueueExtensions = (*Plugin)(nil)
	_ fwk.SignPlugin        = (*Plugin)(nil)
)

// shared is what the profiles of one scheduler have in common.
type shared struct {
	ctx        context.Context // ends with the scheduler
	settling   sync.WaitGroup  // of the goroutines that find out whether a binding took effect
	schedulers *dispatch.Set
	nodes      *nodestate.Cache
	// synced reports whether every node of the informer's first list has reached nodes.
	synced func() bool
}

// NewFactory returns the factory of the plugin. The framework calls it once per profile; all of them share schedulers.
func NewFactory(schedulers *dispatch.Set) frameworkruntime.PluginFactory {
	var once sync.Once
	var common *shared
	var err error
	return func(ctx context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		once.Do(func() { common, err = newShared(ctx, schedulers, handle) })
		if err != nil {
			return nil, err
		}
		return &Plugin{handle: handle, shared: common}, nil
	}
}

// Name returns the plugin's name.
func (*Plugin) Name() string { return Name }

// Close waits for what runs in the background. The framework calls it when the scheduler has stopped.
func (p *Plugin) Close() error {
	p.settling.Wait()
	return nil
}

// newShared follows nodes and pods through the informers of the first profile's handle.
func newShared(ctx context.Context, schedulers *dispatch.Set, handle fwk.Handle) (*shared, error) {
	registerMetrics()
	nodes := nodestate.New(schedulers)
	core := handle.SharedInformerFactory().Core().V1()

	registration, err := core.Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { nodes.Observe(ctx, obj.(*v1.Node)) },
		UpdateFunc: func(_, obj any) { nodes.Observe(ctx, obj.(*v1.Node)) },
		DeleteFunc: func(obj any) {
			if node, ok := deleted[*v1.Node](obj); ok {
				nodes.Forget(ctx, node.Name)
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("follow nodes: %w", err)
	}
	_, err = core.Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		DeleteFunc: func(obj any) {
			if pod, ok := deleted[*v1.Pod](obj); ok {
				nodes.PodGone(pod.UID)
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("follow pods: %w", err)
	}
	return &shared{ctx: ctx, schedulers: schedulers, nodes: nodes, synced: registration.HasSynced}, nil
}

// deleted returns the object of a deletion, also where the informer missed the event and has its last known state only.
func deleted[T any](obj any) (T, bool) {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	object, ok := obj.(T)
	return object, ok
}
