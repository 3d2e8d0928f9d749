// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubedevice/kubedevice/pkg/logkey"
)

// PreBind has upstream's plugin write the allocations.
func (p *Plugin) PreBind(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) *fwk.Status {
	if c := cycleOf(state); c != nil {
		c.wrote = true
	}
	return p.upstream.PreBind(ctx, state, pod, nodeName)
}

// Unreserve gives back what Reserve took, and what PreBind wrote. Upstream's plugin only removes
// the pod from the consumers of a claim: a claim that the pod does not own would keep its devices,
// though no pod has them, until one uses it or it is deleted.
func (p *Plugin) Unreserve(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) {
	p.upstream.Unreserve(ctx, state, pod, nodeName)
	c := cycleOf(state)
	if c == nil || !c.wrote {
		return
	}
	logger := klog.FromContext(ctx)
	bound, err := p.isBound(ctx, pod)
	if err != nil {
		logger.Error(err, "Devices of a pod that was not bound may stay allocated to its claims", logkey.Pod,
			klog.KObj(pod))
		return
	}
	if bound {
		return // the answer was lost
	}
	for _, claim := range c.claims {
		if err := p.deallocate(ctx, claim, pod); err != nil {
			logger.Error(err, "Devices of a pod that was not bound stay allocated to its claim", logkey.Pod,
				klog.KObj(pod), logkey.Claim, klog.KObj(claim))
		}
	}
}

// isBound reports whether the API server has the pod on a node.
func (p *Plugin) isBound(ctx context.Context, pod *v1.Pod) (bool, error) {
	found, err := p.handle.ClientSet().CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil && found.UID == pod.UID && found.Spec.NodeName != "", err
}

// deallocate removes the allocation of a claim that has no consumers but the pod.
func (p *Plugin) deallocate(ctx context.Context, claim *resourceapi.ResourceClaim, pod *v1.Pod) error {
	client := p.handle.ClientSet().ResourceV1().ResourceClaims(claim.Namespace)
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		found, err := client.Get(ctx, claim.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("get claim: %w", err)
		}
		if found.UID != claim.UID || found.Status.Allocation == nil {
			return nil
		}
		for _, consumer := range found.Status.ReservedFor {
			if consumer.UID != pod.UID {
				return nil
			}
		}
		found.Status.Allocation, found.Status.ReservedFor, found.Status.Devices = nil, nil, nil
		updated, err := client.UpdateStatus(ctx, found, metav1.UpdateOptions{})
		if err != nil {
			return fmt.Errorf("remove the claim's allocation: %w", err)
		}
		// It fails if the cache has that or more already.
		_ = p.manager.ResourceClaims().AssumeClaimAfterAPICall(updated)
		return nil
	})
}
