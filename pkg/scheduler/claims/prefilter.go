// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/util"

	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/scheduler/claims/allocator"
	"github.com/kubedevice/kubedevice/pkg/scheduler/metrics"
)

// Reason says why a pod is left to upstream's plugin. It is a label of a metric, as
// [allocator.Reason] is.
type Reason = allocator.Reason

// The reasons that this package adds to those of allocator.
const (
	// ReasonPodGroup is a pod of a group, whose claims may be shared while they are in flight.
	ReasonPodGroup Reason = "pod_group"
	// ReasonExtendedResource is a pod with a resource for which a DeviceClass stands.
	ReasonExtendedResource Reason = "extended_resource"
	// ReasonFeatureGate is a feature gate by which devices or claims mean more than is modelled.
	ReasonFeatureGate Reason = "feature_gate"
)

// PreFilter has upstream's plugin check the pod's claims, and compiles them. A pod without a claim
// to allocate, and one that is left to upstream, is upstream's from here on: it has no cycle.
func (p *Plugin) PreFilter(
	ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo,
) (*fwk.PreFilterResult, *fwk.Status) {
	c, err := p.newCycle(pod)
	if err != nil {
		p.leave(ctx, pod, err)
	}
	if c == nil {
		return p.upstream.PreFilter(ctx, state, pod, nodes)
	}
	slices, err := p.manager.SharedDRAManager.ResourceSlices().ListWithDeviceTaintRules()
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	c.index = p.inventory.Update(slices)
	if c.ours, err = p.ledger.Ours(ctx); err != nil {
		return nil, fwk.AsStatus(err)
	}
	c.reasons.holders.ours = c.ours
	checks := &view{}
	var status *fwk.Status
	p.manager.during(checks, func() { _, status = p.upstream.PreFilter(ctx, state, pod, nodes) })
	if !status.IsSuccess() {
		return nil, status
	}
	if checks.allocated == nil { // the claims were allocated in between
		return p.upstream.PreFilter(ctx, state, pod, nodes)
	}
	c.allocated = checks.allocated
	state.Write(cycleKey, c)
	return nil, nil
}

// leave counts a pod that is left to upstream.
func (p *Plugin) leave(ctx context.Context, pod *v1.Pod, err error) {
	reason := allocator.ReasonError
	var known *allocator.ErrNotModelled
	if errors.As(err, &known) {
		reason = known.Reason
	}
	metrics.ClaimsLeftToUpstream.WithLabelValues(string(reason)).Inc()
	klog.FromContext(ctx).V(3).Info("Left the claims of a pod to upstream's allocator",
		logkey.Pod, klog.KObj(pod), logkey.Reason, err.Error())
}

// newCycle returns the cycle of a pod that has claims to allocate, nil if it has none, and an error
// if it is left to upstream. Upstream reports what is wrong with a claim, such as that it is
// missing.
func (p *Plugin) newCycle(pod *v1.Pod) (*cycle, error) {
	if len(pod.Spec.ResourceClaims) == 0 {
		return nil, nil
	}
	c := newCycle(p, pod.Namespace)
	there := map[types.UID]bool{}
	for i := range pod.Spec.ResourceClaims {
		claim := p.claim(pod, &pod.Spec.ResourceClaims[i])
		switch {
		case claim == nil:
			return nil, nil
		case there[claim.UID]:
			return nil, notModelled(allocator.ReasonFeature, "the pod has one claim twice")
		case claim.Status.Allocation == nil:
			c.claims = append(c.claims, claim)
		default:
			if err := c.pin(claim); err != nil {
				return nil, err
			}
		}
		there[claim.UID] = true
	}
	if len(c.claims) == 0 {
		return nil, nil
	}
	if err := p.models(pod); err != nil {
		return nil, err
	}
	request, err := allocator.Compile(c.claims, p.manager.DeviceClasses(), p.selectors, p.options)
	if err != nil {
		return nil, err
	}
	c.request = request
	return c, nil
}

// claim returns a claim of a pod, nil if upstream has something to say of it, or nothing to do.
func (p *Plugin) claim(pod *v1.Pod, named *v1.PodResourceClaim) *resourceapi.ResourceClaim {
	name, _, err := resourceclaim.Name(pod, named)
	if err != nil || name == nil {
		return nil
	}
	claim, err := p.manager.ResourceClaims().Get(pod.Namespace, *name)
	if err != nil {
		return nil
	}
	return claim
}

// pin restricts the nodes to those where an allocated claim can be used.
func (c *cycle) pin(claim *resourceapi.ResourceClaim) error {
	for i := range claim.Status.Allocation.Devices.Results {
		if len(claim.Status.Allocation.Devices.Results[i].BindingConditions) > 0 {
			return notModelled(allocator.ReasonFeature, "an allocated claim has binding conditions")
		}
	}
	if claim.Status.Allocation.NodeSelector == nil {
		return nil
	}
	selector, err := nodeaffinity.NewNodeSelector(claim.Status.Allocation.NodeSelector)
	if err != nil {
		return err
	}
	c.pins = append(c.pins, pin{claim.Name, selector})
	return nil
}

// models returns an error if the pod, or a feature gate, has more to it than its claims.
func (p *Plugin) models(pod *v1.Pod) error {
	for name, on := range map[string]bool{
		"DRANodeAllocatableResources": p.features.EnableDRANodeAllocatableResources,
		"DRAListTypeAttributes":       p.features.EnableDRAListTypeAttributes,
		"DRAOptionalNodeOperations":   p.features.EnableDRAOptionalNodeOperations,
		"DRADerivedAttributes":        p.features.EnableDRADerivedAttributes,
		"DRACompatibilityGroups":      p.features.EnableDRADeviceCompatibilityGroups,
		"DRAWorkloadResourceClaims":   p.features.EnableDRAWorkloadResourceClaims,
	} {
		if on {
			return notModelled(ReasonFeatureGate, "the feature gate %s is on", name)
		}
	}
	if pod.Spec.SchedulingGroup != nil {
		return notModelled(ReasonPodGroup, "the pod belongs to a pod group")
	}
	if p.features.EnableInPlacePodVerticalScalingSchedulerPreemption && resourcehelper.IsPodResizeDeferred(pod) {
		return notModelled(ReasonFeatureGate, "the pod's resize is deferred")
	}
	if !p.features.EnableDRAExtendedResource {
		return nil
	}
	for name, quantity := range resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}) {
		if !quantity.IsZero() && util.IsDRAExtendedResourceName(name) &&
			p.manager.DeviceClassResolver().GetDeviceClass(name) != nil {
			return notModelled(ReasonExtendedResource, "a DeviceClass stands for the resource %s", name)
		}
	}
	return nil
}

func notModelled(reason Reason, format string, args ...any) error {
	return allocator.NotModelled(reason, format, args...)
}
