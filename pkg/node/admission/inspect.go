// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/node/firewall"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/kubeletstate"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Inspect returns why a container that exists already must be ended, or "" if it need not: it was
// created past this program, and lacks the devices that it was allocated, or asks for devices that
// it was not. An error says that this is not known now. What a container carries of an
// allocation is the grants' business.
func (a *Admission) Inspect(ctx context.Context, c Container) (reason string, err error) {
	r := newRequest(c)
	if !r.fromAPI {
		return "", nil
	}
	if carried := r.config.GetAnnotations()[grants.Annotation]; carried != "" {
		own, err := a.Grants.Confirms(r.uid, r.namespace, r.name, r.container, carried)
		if err != nil || own {
			return "", err
		}
	}
	granted, ok, err := a.Grants.Granted(ctx, r.uid)
	if err != nil {
		return "", err
	}
	if ok {
		r.granted = &granted
	}
	switch {
	case !r.isAllocated():
	case ok && granted.Adopted:
		// The kubelet gave it its devices, or has forgotten them, and called kubecri for others.
		if r.config.GetAnnotations()[kubeletstate.PlaceholderAnnotation] != "" {
			return ended(r, "it does not have the devices that its pod holds"), nil
		}
		return "", nil
	default:
		return ended(r, "it does not have the devices that it was allocated"), nil
	}
	var known bool
	if r.spec, known = a.Pods.Get(r.uid); !known {
		return "", pods.ErrUnknown // without waiting: there may be many
	}
	if ok && granted.Adopted {
		return a.inspectPast(ctx, r)
	}
	var devicePod bool
	if r.spec, devicePod, err = a.isDevicePod(ctx, r.podRef); err != nil {
		return "", err
	}
	if devicePod {
		lacks, err := a.lacksDevices(r)
		if err != nil {
			return "", err
		}
		if lacks {
			return ended(r, "it does not have the devices that it requests"), nil
		}
	}
	return a.inspectPast(ctx, r)
}

// isAllocated reports whether the container was allocated devices, as far as the grants or, for a
// pod without one, the annotation says so.
func (r *request) isAllocated() bool {
	if r.granted != nil && !r.granted.Lacks(r.container) {
		part := r.granted.PodInfo.GetContainerInPod(r.container)
		return part != nil && len(part.AllocateFrom) > 0
	}
	written, err := r.annotation()
	return err == nil && written != nil && len(containersOf(written)[r.container].AllocateFrom) > 0
}

// lacksDevices reports whether the container requests a device resource, and does not have it from
// the kubelet, which may have given it before the resource moved here.
func (a *Admission) lacksDevices(r *request) (bool, error) {
	resources, _ := a.Pods.DeviceResources()
	for _, requested := range r.spec.Requests[r.container] {
		if !resources[requested] {
			continue
		}
		given, err := a.Adopted.AllocatedTo(r.uid, r.container)
		return err == nil && len(given) == 0, err
	}
	return false, nil
}

// inspectPast is Inspect for what the container asks for past the scheduler.
func (a *Admission) inspectPast(ctx context.Context, r *request) (reason string, err error) {
	if a.Firewall == nil || r.config.GetLinux().GetSecurityContext().GetPrivileged() {
		return "", nil
	}
	guard, err := a.guardOf(ctx)
	if err != nil || !guard.Active() {
		return "", err
	}
	c, err := a.asFirewall(r, guard)
	if err != nil {
		return "", err
	}
	c.Own = nil        // the image's variables were not overridden
	c.Adjusted = false // and nothing will be adjusted
	forgotten, err := a.forgotten(r, c)
	if err != nil {
		return "", err
	}
	attempts := slices.DeleteFunc(append(guard.Refused(c), guard.Taken(c)...), func(attempt firewall.Attempt) bool {
		return slices.ContainsFunc(forgotten, func(requested types.ResourceName) bool {
			return guard.MayGive(requested, attempt)
		})
	})
	if len(attempts) == 0 {
		return "", nil
	}
	allowed, err := a.isAllowed(ctx, r.podRef, r.spec)
	if err != nil || allowed {
		return "", err
	}
	a.observe(attempts, AttemptRefused)
	return ended(r, list(attempts)+" asks for devices that it was not allocated"), nil
}

// forgotten returns the resources of the kubelet's that the container requests, and for which the
// kubelet does not remember what their plugins gave it: the container must not be ended for that. A
// resource that no plugin serves is not one of them: the kubelet starts a pod that names the node
// and requests what the node does not have.
func (a *Admission) forgotten(r *request, c firewall.Container) ([]types.ResourceName, error) {
	managed, _ := a.Pods.DeviceResources()
	var all []types.ResourceName
	for _, requested := range r.spec.Requests[r.container] {
		isOf := func(gift firewall.Gift) bool { return gift.Resource == requested }
		if !managed[requested] && !slices.ContainsFunc(c.Kubelet, isOf) {
			all = append(all, requested)
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	served, err := a.Kubelet.Served()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(requested types.ResourceName) bool {
		return !slices.Contains(served, requested)
	}), nil
}

// ended is what the pod's owner hears.
func ended(r *request, what string) string {
	return short(fmt.Sprintf("container %q was started while kubecri was away, and is ended: %s; where its pod's "+
		"restart policy does not have it started again, delete the pod", r.container, what))
}
