// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/logkey"
	podrequest "github.com/kubedevice/kubedevice/pkg/request"
)

// Admit decides about a container that is about to be created. It returns what to add to it, or nil
// if it passes untouched. Its error has a gRPC status, whose message is for the pod's owner. What
// is returned must win over what the container has: a variable that is set twice has this value.
func (a *Admission) Admit(ctx context.Context, c Container) (addition *runtimeapi.ContainerConfig, err error) {
	outcome := Refused
	defer func() { a.Metrics.ObserveContainer(outcome) }()
	r := newRequest(c)
	devicePod, err := a.verify(ctx, r)
	if err == nil && !devicePod {
		if err = refuseUnallocated(r); err == nil {
			err = a.refuseHeld(r)
		}
		if err == nil {
			a.reportMisspelled(r.podRef)
		}
	}
	if err == nil {
		err = a.guard(ctx, r)
	}
	if err == nil && devicePod {
		err = a.Refusals.remember(r.podRef, a.grant(ctx, r))
	}
	result := Passed
	if err == nil {
		addition, result, err = a.inject(ctx, r)
	}
	if err != nil {
		return nil, a.refuse(ctx, r.podRef, err)
	}
	outcome = result
	if outcome != Passed {
		klog.FromContext(ctx).
			V(2).
			Info("A container is changed", logkey.Outcome, outcome, logkey.Pod, r.objectRef(), logkey.Container,
				r.container)
	}
	return addition, nil
}

// reportMisspelled reports an annotation that is probably the pod's request for devices.
// KubeDevice's scheduler does not bind such a pod. One that another scheduler has bound starts: it
// may be none of ours.
func (a *Admission) reportMisspelled(pod podRef) {
	if !pod.fromAPI {
		return
	}
	if mistake := podrequest.MisspelledRequest(pod.annotations); mistake != nil {
		a.Events.WarnMistake(pod.object(), clip(fmt.Sprintf("%s The pod starts without the devices that this may "+
			"request: correct the key, and create the pod again for KubeDevice's scheduler", mistake)))
	}
}
