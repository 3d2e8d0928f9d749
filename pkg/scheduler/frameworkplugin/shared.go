// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"context"
	"fmt"
	"time"

	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/scheduler/metrics"
	"github.com/kubedevice/kubedevice/pkg/scheduler/nodestate"
	"github.com/kubedevice/kubedevice/pkg/scheduler/verdict"
	"github.com/kubedevice/kubedevice/pkg/seal"
)

// Shared is what the profiles of one scheduler have in common. It is safe for concurrent use.
type Shared struct {
	background
	leadership

	schedulers *allocation.Set
	nodes      *nodestate.Cache
	clock      clock.WithTicker
	requeuer   *requeuer
	retries    *retries
	verdicts   verdict.Cache
	quotas     *quotas
	quotaMode  QuotaMode
	mistaken   *reported

	seals    Seals
	unsealed unsealedPods
	recorder events.EventRecorder

	unallocated unallocatedPods

	dra        fwk.SharedDRAManager // nil where there is none
	nodeLister corelisters.NodeLister
	pods       cache.Indexer
	podsSynced synced
	// nodesSynced reports whether every node of the informer's first list has reached nodes.
	nodesSynced synced
	// whatIf says that this answers questions, see WhatIf.
	whatIf bool
}

// synced knows whether an informer has delivered its first list.
type synced interface{ HasSynced() bool }

// Options are what the arguments of the plugin decide.
type Options struct {
	// NoVerdictCache makes the plugin evaluate every node for every pod.
	NoVerdictCache bool
	// BestDevicesWait is how long a pod waits for the best devices of all nodes where others would
	// do; 0 is for ever.
	BestDevicesWait time.Duration
	// Quota says which pods are refused that request devices beyond their limits; "" stands for
	// QuotaEnforce.
	Quota QuotaMode
	// Seals are the keys that allocations are sealed with, and what is demanded of bound pods.
	Seals Seals
	// EvictUnallocated evicts pods that were bound without the devices that they request, before
	// this scheduler led, if a controller will make them again.
	EvictUnallocated bool
}

// NewShared follows nodes and pods through the informers of the first profile's handle. The caller
// closes it, or a plugin that it made.
func NewShared(
	ctx context.Context, schedulers *allocation.Set, handle fwk.Handle, options Options,
) (*Shared, error) {
	metrics.Register()
	core := handle.SharedInformerFactory().Core().V1()
	clk := clock.RealClock{}
	s := &Shared{
		schedulers:  schedulers,
		nodes:       nodestate.New(schedulers, core.Nodes().Lister(), clk),
		clock:       clk,
		mistaken:    newReported(),
		seals:       options.Seals,
		recorder:    handle.EventRecorder(),
		unallocated: unallocatedPods{client: handle.ClientSet(), evict: options.EvictUnallocated},

		dra:        handle.SharedDRAManager(),
		nodeLister: core.Nodes().Lister(),
		pods:       core.Pods().Informer().GetIndexer(),
		podsSynced: core.Pods().Informer(),
	}
	if schedulers.Patient() {
		s.nodes.Requests.LimitWait(options.BestDevicesWait)
	}
	s.background.init(ctx)
	s.verdicts = verdict.New(schedulers, s.nodes)
	if options.NoVerdictCache {
		s.verdicts = verdict.PassThrough()
	}
	if s.seals.Mode == seal.Enforce {
		s.nodes.Enforce(s.seals.Keys.Verifier())
	}
	if err := indexByNode(core.Pods().Informer()); err != nil {
		return nil, fmt.Errorf("index pods by node: %w", err)
	}
	queue := schedulingQueue{handle, core.Pods().Lister(), s.nodes}
	s.requeuer = &requeuer{runner: s, clock: clk, queue: queue}
	s.quotaMode = options.Quota
	s.quotas = newQuotas(handle.ClientSet(), s, s.requeuer)
	s.retries = &retries{runner: s, clock: clk, queue: queue}
	schedulers.OnRetranslation(func() { s.requeuer.after(0) })

	registration, err := core.Nodes().Informer().AddEventHandler(s.nodeHandler(ctx))
	if err != nil {
		return nil, fmt.Errorf("follow nodes: %w", err)
	}
	s.nodesSynced = registration
	if _, err := core.Pods().Informer().AddEventHandler(s.podHandler(ctx)); err != nil {
		return nil, fmt.Errorf("follow pods: %w", err)
	}
	s.followSeals()
	s.every(reportPause, s.checkUnallocated)
	return s, nil
}

// Synced reports whether every node and pod of the informers' first lists is known.
func (s *Shared) Synced() bool { return s.nodesSynced.HasSynced() && s.podsSynced.HasSynced() }

// Nodes returns what is known of the cluster's nodes.
func (s *Shared) Nodes() *nodestate.Cache { return s.nodes }
