// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"

	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/kubeletstate"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
)

// Inspect returns why a container that exists already must be ended, or "" if it need not: it was
// created without this program, and lacks the devices that it was allocated, or requests devices
// that it was not. An error says that this is not known now. What a container carries of an
// allocation is the grants' business.
func (a *Admission) Inspect(ctx context.Context, c Container) (reason string, err error) {
	r := newRequest(c)
	if !r.fromAPI {
		return "", nil
	}
	if encoded := r.config.GetAnnotations()[grants.Annotation]; encoded != "" {
		own, err := a.Grants.Confirms(r.uid, r.namespace, r.name, r.container, encoded)
		if err != nil || own {
			return "", err
		}
	}
	granted, ok, err := a.grantedToExisting(ctx, r)
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
			return endedMessage(r, "it does not have the devices that its pod holds"), nil
		}
		if !r.created.IsZero() && r.created.Before(granted.Since) {
			return "", nil // all devices of the vendor were the kubelet's then
		}
		r.keepsKubelets = true
	default:
		return endedMessage(r, "it does not have the devices that it was allocated"), nil
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
			return endedMessage(r, "it does not have the devices that it requests"), nil
		}
	}
	return a.inspectPast(ctx, r)
}

// grantedToExisting returns what was granted to the pod, without waiting where the file says it.
// The file may lack a pod that has devices from a plugin of the kubelet's.
func (a *Admission) grantedToExisting(ctx context.Context, r *request) (grants.Allocation, bool, error) {
	granted, ok, err := a.Grants.Recorded(r.uid)
	if err == nil && ok {
		return granted, true, nil
	}
	held, heldErr := a.Adopted.AllocatedTo(r.uid, r.container)
	if err == nil && heldErr == nil && len(held) == 0 {
		return granted, false, nil
	}
	return a.Grants.Granted(ctx, r.uid)
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
		granted, err := a.Adopted.AllocatedTo(r.uid, r.container)
		return err == nil && len(granted) == 0, err
	}
	return false, nil
}

// inspectPast is Inspect for what the container requests without the scheduler. What a plugin of
// the kubelet's gave it stays, as far as the kubelet remembers. If the kubelet has forgotten it, it
// gives the devices to others, and allocates again when it starts the container again.
func (a *Admission) inspectPast(ctx context.Context, r *request) (reason string, err error) {
	if a.Firewall == nil || r.config.GetLinux().GetSecurityContext().GetPrivileged() {
		return "", nil
	}
	guard, err := a.guardOf(ctx)
	if err != nil || !guard.Active() {
		return "", err
	}
	c, err := a.firewallContainer(r, guard)
	if err != nil {
		return "", err
	}
	c.Own = nil        // the image's variables were not overridden
	c.Adjusted = false // and nothing will be adjusted
	attempts := append(guard.Refused(c), guard.Taken(c)...)
	if len(attempts) == 0 {
		return "", nil
	}
	allowed, err := a.isAllowed(ctx, r.podRef, r.spec)
	if err != nil || allowed {
		return "", err
	}
	a.observe(attempts, AttemptRefused)
	return endedMessage(r, joinAttempts(attempts)+" requests devices that it was not allocated"), nil
}

// endedMessage is what the pod's owner hears.
func endedMessage(r *request, what string) string {
	return clip(fmt.Sprintf("container %q was started while kubecri was away, and is ended: %s; where its pod's "+
		"restart policy does not have it started again, delete the pod", r.container, what))
}
