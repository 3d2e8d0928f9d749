// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/dynamic-resource-allocation/structured"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/scheduler/ledger"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Ledger returns what is known of devices that DRA drivers publish, too; nil in a cluster without
// dynamic resource allocation.
func (s *Shared) Ledger() *ledger.Ledger { return s.ledger }

var _ ledger.Holdings = (*Shared)(nil)

// HeldNames implements ledger.Holdings.
func (s *Shared) HeldNames(node string) []sdk.ResourceName {
	pods, err := s.PodsOn(node)
	if err != nil {
		return nil // there is no such index
	}
	return s.nodes.HeldNames(node, pods)
}

// followClaims keeps what claims have from other pods.
func (s *Shared) followClaims(handle fwk.Handle) error {
	if s.dra == nil {
		return nil
	}
	s.ledger = ledger.New(s.dra, s)
	s.nodes.FollowClaims(s.ledger)
	published := handle.SharedInformerFactory().Resource().V1().ResourceSlices().Informer()
	_, err := published.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { s.ledger.SlicesChanged() },
		UpdateFunc: func(any, any) { s.ledger.SlicesChanged() },
		DeleteFunc: func(any) { s.ledger.SlicesChanged() },
	})
	return err
}

// syncClaims brings all nodes up to date with what claims have of them.
func (s *Shared) syncClaims(ctx context.Context) {
	if s.ledger == nil {
		return
	}
	for _, name := range s.ledger.Outdated(ctx) {
		s.nodes.ClaimsChanged(ctx, name)
	}
}

// afterRelisting requeues pods with claims when a node lists other devices, where that may concern
// claims: queueing hints may have been called before this was known.
func (s *Shared) afterRelisting(before, after *v1.Node) {
	if s.ledger != nil && s.ledger.Joined() && !ledger.SameDevices(before, after) {
		s.requeuer.activateAfter(0)
	}
}

// afterStray does the same when a pod is gone that may have had a device which its node lists no
// longer.
func (s *Shared) afterStray(pod *v1.Pod) {
	if s.ledger != nil && s.ledger.Joined() && deviceinfo.MayAllocate(pod.Annotations[deviceinfo.Annotation]) {
		s.requeuer.activateAfter(0)
	}
}

// Permit refuses a pod whose claims are about to get a device that is KubeDevice's. Where this
// scheduler chooses for claims, none is; upstream's allocator knows nothing of such devices.
func (p *Plugin) Permit(
	ctx context.Context, _ fwk.CycleState, pod *v1.Pod, _ string,
) (*fwk.Status, time.Duration) {
	if len(pod.Spec.ResourceClaims) == 0 || p.ledger == nil {
		return nil, 0
	}
	ours, err := p.ledger.Ours(ctx)
	if err != nil {
		return fwk.AsStatus(err), 0
	}
	if len(ours) == 0 {
		return nil, 0
	}
	for i := range pod.Spec.ResourceClaims {
		for id := range p.pending(pod, &pod.Spec.ResourceClaims[i]) {
			if ours.Has(id) {
				return fwk.NewStatus(fwk.Unschedulable, fmt.Sprintf("would give a claim of the pod device %s, which "+
					"KubeDevice allocates there. The scheduler's setting \"claims: kubedevice\" chooses others", id)), 0
			}
		}
	}
	return nil, 0
}

// pending returns the devices that are being allocated to a claim of a pod.
func (s *Shared) pending(pod *v1.Pod, named *v1.PodResourceClaim) func(func(structured.DeviceID) bool) {
	return func(yield func(structured.DeviceID) bool) {
		name, _, err := resourceclaim.Name(pod, named)
		if err != nil || name == nil {
			return
		}
		claim, err := s.dra.ResourceClaims().Get(pod.Namespace, *name)
		if err != nil {
			return
		}
		allocation := s.dra.ResourceClaims().GetPendingAllocation(claim.UID)
		if allocation == nil {
			allocation = &resourceapi.AllocationResult{}
		}
		for i := range allocation.Devices.Results {
			result := &allocation.Devices.Results[i]
			if !ptr.Deref(result.AdminAccess, false) &&
				!yield(structured.MakeDeviceID(result.Driver, result.Pool, result.Device)) {
				return
			}
		}
	}
}
