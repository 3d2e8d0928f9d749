// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
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
			return never(fmt.Errorf("container %q requests %s, and has no device of it by the kubelet nor by the "+
				"scheduler; %s", r.container, requested, scheduleAgain))
		}
	}
	allocated, err := a.Adopted.AllocatedTo(r.uid, r.container)
	if err != nil {
		return later(fmt.Errorf("which devices the kubelet allocated to container %q is not known: %w", r.container,
			err))
	}
	if len(allocated) == 0 {
		return nil
	}
	if !sameResources(own, allocated) {
		return never(fmt.Errorf("container %q had the devices %s from the kubelet before they moved to kubecri, and "+
			"now the kubelet gives it %s; %s", r.container, join(own), join(allocated), scheduleAgain))
	}
	r.asBefore = true
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
	return later(fmt.Errorf("container %q requests devices that kubecri gives out in the kubelet's place, and they "+
		"are not among the node's; it is tried again, and if that does not help, %s", r.container, scheduleAgain))
}

// refuseHeld has a container wait that the kubelet gave devices of a plugin of its own, while
// another pod holds devices of the resource by a plugin file: the kubelet does not know which, and
// may have given it the same.
func (a *Admission) refuseHeld(r *request) error {
	if !r.fromAPI || a.Files == nil {
		return nil
	}
	for _, requested := range r.spec.Requests[r.container] {
		if holder := a.Files.Holder(requested, r.uid); holder != "" {
			return later(fmt.Errorf("container %q requests %s, which a device plugin at the kubelet serves now, and "+
				"pod %s holds a device of it by a plugin file of kubecri: the kubelet may have given it to both; the "+
				"container starts when no such pod is left", r.container, requested, holder))
		}
	}
	return nil
}
