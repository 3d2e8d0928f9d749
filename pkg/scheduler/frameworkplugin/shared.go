// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"context"
	"fmt"
	"sync/atomic"

	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/scheduler/dispatch"
	"github.com/kubedevice/kubedevice/pkg/scheduler/metrics"
	"github.com/kubedevice/kubedevice/pkg/scheduler/nodestate"
	"github.com/kubedevice/kubedevice/pkg/scheduler/verdict"
)

// Shared is what the profiles of one scheduler have in common. It is safe for concurrent use.
type Shared struct {
	background

	schedulers *dispatch.Set
	nodes      *nodestate.Cache
	clock      clock.Clock
	requeuer   *requeuer
	verdicts   verdict.Cache

	nodeLister corelisters.NodeLister
	pods       cache.Indexer
	// hints are those for the latest event: all waiting pods are compared with it before the next.
	hints atomic.Pointer[cachedHints]
	// synced reports whether every node of the informer's first list has reached nodes.
	synced func() bool
}

// Options are what the command line decides.
type Options struct {
	// NoVerdictCache makes the plugin evaluate every node for every pod.
	NoVerdictCache bool
}

// NewShared follows nodes and pods through the informers of the first profile's handle. The caller
// closes it, or a plugin that it made.
func NewShared(
	ctx context.Context, schedulers *dispatch.Set, handle fwk.Handle, options Options,
) (*Shared, error) {
	metrics.Register()
	core := handle.SharedInformerFactory().Core().V1()
	clk := clock.RealClock{}
	s := &Shared{
		schedulers: schedulers,
		nodes:      nodestate.New(schedulers, core.Nodes().Lister(), clk),
		clock:      clk,
		nodeLister: core.Nodes().Lister(),
		pods:       core.Pods().Informer().GetIndexer(),
	}
	s.background.init(ctx)
	s.verdicts = verdict.New(schedulers, s.nodes)
	if options.NoVerdictCache {
		s.verdicts = verdict.PassThrough()
	}
	if err := indexByNode(core.Pods().Informer()); err != nil {
		return nil, fmt.Errorf("index pods by node: %w", err)
	}
	s.requeuer = &requeuer{run: s.Run, clock: clk, activate: func(ctx context.Context) {
		activatePending(ctx, handle, core.Pods().Lister(), s.nodes)
	}}
	schedulers.OnRetranslation(func() {
		s.hints.Store(nil)
		s.requeuer.after(0)
	})

	registration, err := core.Nodes().Informer().AddEventHandler(s.nodeHandler(ctx))
	if err != nil {
		return nil, fmt.Errorf("follow nodes: %w", err)
	}
	s.synced = registration.HasSynced
	if _, err := core.Pods().Informer().AddEventHandler(s.podHandler(ctx)); err != nil {
		return nil, fmt.Errorf("follow pods: %w", err)
	}
	return s, nil
}

// Nodes returns what is known of the cluster's nodes.
func (s *Shared) Nodes() *nodestate.Cache { return s.nodes }
