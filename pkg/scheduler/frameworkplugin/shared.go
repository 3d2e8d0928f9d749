// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"time"

	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/scheduler/ledger"
	"github.com/kubedevice/kubedevice/pkg/scheduler/nodestate"
	"github.com/kubedevice/kubedevice/pkg/scheduler/verdict"
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
	mistaken   *reported // mistakes in annotations
	unknown    *reported // exclusions of devices, by the annotation

	seals    Seals
	unsealed unsealedPods
	recorder events.EventRecorder

	unallocated unallocatedPods

	dra        fwk.SharedDRAManager // nil where there is none
	ledger     *ledger.Ledger       // nil where dra is, and for questions
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

// Synced reports whether every node and pod of the informers' first lists is known.
func (s *Shared) Synced() bool { return s.nodesSynced.HasSynced() && s.podsSynced.HasSynced() }

// Nodes returns what is known of the cluster's nodes.
func (s *Shared) Nodes() *nodestate.Cache { return s.nodes }
