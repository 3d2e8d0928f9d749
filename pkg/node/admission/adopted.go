// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/kubeletstate"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// verifyAdopted lets a container of an adopted pod keep the kubelet's devices, if the kubelet
// allocates it the devices that are recorded as its own. A container that is recorded with none is
// treated like that of any device pod; so is one whose devices the kubelet has forgotten, as it
// does when it is killed while it fails the pod. No other pod has them: they are in the checkpoint
// here.
func (a *Admission) verifyAdopted(r *request) error {
	container := r.granted.PodInfo.GetContainerInPod(r.container)
	if container == nil || len(container.AllocateFrom) == 0 {
		return nil
	}
	own := slices.Sorted(maps.Values(container.AllocateFrom))
	resources, _ := a.Pods.DeviceResources()
	for _, requested := range r.spec.Requests[r.container] {
		isOf := func(name types.ResourceName) bool {
			d, ok := kubeletdevice.Parse(name)
			return ok && d.Resource == requested
		}
		if resources[requested] && !slices.ContainsFunc(own, isOf) {
			return failedPrecondition(fmt.Errorf("container %q requests %s, and has no device of it by the kubelet "+
				"nor by the scheduler; %s", r.container, requested, scheduleAgain))
		}
	}
	allocated, err := a.Adopted.AllocatedTo(r.uid, r.container)
	if err != nil {
		return unavailable(fmt.Errorf("which devices the kubelet allocated to container %q is not known: %w",
			r.container,
			err))
	}
	if len(allocated) == 0 {
		return nil
	}
	if !sameResources(own, allocated) {
		return failedPrecondition(fmt.Errorf("container %q had the devices %s from the kubelet before they moved to "+
			"kubecri, and now the kubelet gives it %s; %s", r.container, join(own), join(allocated), scheduleAgain))
	}
	r.keepsKubelets = true
	return nil
}

// sameResources reports whether both are the same resources of the same devices. In which groups
// they are, and so in which order, may have changed.
func sameResources(a, b []types.ResourceName) bool {
	for _, name := range a {
		if !slices.ContainsFunc(b, func(other types.ResourceName) bool { return grants.SameResource(name, other) }) {
			return false
		}
	}
	return len(a) == len(b)
}

func join(names []types.ResourceName) string {
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = string(name)
	}
	return strings.Join(texts, ", ")
}

// refuseUnallocated refuses a container of a pod that counts as no device pod, and for which the
// kubelet has called a placeholder plugin: it would start without devices.
func refuseUnallocated(r *request) error {
	if !r.fromAPI || r.config.GetAnnotations()[kubeletstate.PlaceholderAnnotation] == "" {
		return nil
	}
	return unavailable(fmt.Errorf("container %q requests devices that kubecri gives out in the kubelet's place, and "+
		"they are not among the node's; it is tried again, and if that does not help, %s", r.container, scheduleAgain))
}

// refuseHeld has a container wait that the kubelet gave devices of a plugin of its own, while
// another pod holds devices of the resource by a plugin file, or by a plugin that was registered
// here: the kubelet does not know which, and may have given it the same.
func (a *Admission) refuseHeld(r *request) error {
	if !r.fromAPI || a.Holders == nil {
		return nil
	}
	for _, requested := range r.spec.Requests[r.container] {
		if err := a.errHeld(r, requested); err != nil {
			return err
		}
	}
	return nil
}

// errHeld is why a container must not start yet to which the kubelet gave a device of the resource,
// or nil.
func (a *Admission) errHeld(r *request, requested types.ResourceName) error {
	by, holder := "a plugin file of kubecri", a.Holders.Holder(requested, r.uid)
	if holder == "" {
		by, holder = "a device plugin that registered with kubecri", a.Holders.HostedHolder(requested, r.uid)
	}
	if holder == "" {
		return nil
	}
	return unavailable(fmt.Errorf("container %q requests %s, which a device plugin at the kubelet serves now, and pod "+
		"%s holds a device of it by %s: the kubelet may have given it to both; the container starts when no such pod "+
		"is left", r.container, requested, holder, by))
}

// verifyKubelets verifies what the kubelet gave to a container with these devices of its pod's
// allocation, or none. A plugin of the same resource that registers with the kubelet is not noticed
// at once, or not at all where the resource was taken over: the kubelet then gives the container a
// device, too, which may be another pod's.
func (a *Admission) verifyKubelets(ctx context.Context, r *request, from types.ResourceLocation) error {
	given, err := a.Kubelet.Injections(r.uid, r.container)
	if err != nil {
		return unavailable(fmt.Errorf("what the kubelet's device plugins gave container %q is not known: %w",
			r.container, err))
	}
	inventory, _ := a.Devices.Inventory()
	resources, _ := a.Pods.DeviceResources()
	for _, injection := range given {
		if inventory.Serves(injection.Resource, from) {
			a.Rivals.Yield(ctx, injection.Resource, r.uid)
			return failedPrecondition(fmt.Errorf("container %q is allocated %s, and a device plugin that is "+
				"registered with the kubelet gave it a device of %s, too: keep one of the two plugins from this "+
				"node; %s", r.container, join(slices.Sorted(maps.Values(from))), injection.Resource, scheduleAgain))
		}
		if a.Holders == nil || resources[injection.Resource] {
			continue // it has it since before the resource moved here
		}
		if err := a.errHeld(r, injection.Resource); err != nil {
			return err
		}
	}
	return nil
}
