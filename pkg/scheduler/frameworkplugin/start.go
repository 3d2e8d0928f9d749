// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"context"
	"fmt"

	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	"github.com/kubedevice/kubedevice/pkg/scheduler/metrics"
	"github.com/kubedevice/kubedevice/pkg/scheduler/nodestate"
	"github.com/kubedevice/kubedevice/pkg/scheduler/verdict"
	"github.com/kubedevice/kubedevice/pkg/seal"
)

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
		unknown:     newReported(),
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
	schedulers.OnRetranslation(s.requeuer)

	if err := s.followClaims(handle); err != nil {
		return nil, fmt.Errorf("follow ResourceSlices: %w", err)
	}
	registration, err := core.Nodes().Informer().AddEventHandler(s.nodeHandler(ctx))
	if err != nil {
		return nil, fmt.Errorf("follow nodes: %w", err)
	}
	s.nodesSynced = registration
	if _, err := core.Pods().Informer().AddEventHandler(s.podHandler(ctx)); err != nil {
		return nil, fmt.Errorf("follow pods: %w", err)
	}
	s.followSeals()
	s.runWhileLeading(reportInterval, s.checkUnallocated)
	return s, nil
}
