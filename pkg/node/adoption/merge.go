// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"context"
	"fmt"
	"maps"
	"time"

	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// removeReturned removes from adopted allocations the devices that the kubelet has allocated to the
// same containers by itself, because their resources have moved back. What it has forgotten stays:
// nothing else knows that the pod holds it.
func removeReturned(allocations map[string]*grants.Allocation, kubelets map[entry]bool) {
	for uid, allocation := range allocations {
		if !allocation.Adopted {
			continue
		}
		kept := without(allocation, kubelets)
		if len(kept.PodInfo.InitContainers)+len(kept.PodInfo.RunningContainers) == 0 {
			delete(allocations, uid)
			continue
		}
		allocations[uid] = kept
	}
}

// adopt adds to allocations the candidates that live, and returns the devices of the others that
// may be held still, by name, each with the reason.
//
// A pod is adopted if the API server has it and it holds nothing by the scheduler. The holder of a
// device is not certain if the pod is unknown, as a static pod is, which the scheduler sees under
// another UID; or if the pod has an allocation, too; or if another pod holds the device already.
func adopt(
	ctx context.Context, found []candidate, known Pods, running map[string]grants.RuntimeState,
	allocations map[string]*grants.Allocation,
) (withheld map[types.ResourceName]string) {
	withheld = map[types.ResourceName]string{}
	for i := range found {
		pod := &found[i]
		previous := allocations[pod.PodUID]
		adopted := &pod.Allocation
		if previous != nil && previous.Adopted {
			if adopted = merged(previous, adopted); sameDevices(previous, adopted) {
				continue
			}
		} else if previous == nil && !pod.isListed(known) && !pod.mayRun(running) {
			continue // the kubelet has not noticed that the pod is gone
		}
		if doubt := pod.unverified(adopted, known, running, allocations); doubt != "" {
			for name := range adopted.Holds() {
				withheld[name] = doubt
			}
			continue
		}
		if previous == nil {
			adopted.Since = time.Now().UTC()
			klog.FromContext(ctx).Info("A pod is adopted that holds devices which the kubelet allocated", logkey.Pod,
				adopted.Pod(), logkey.PodUID, adopted.PodUID)
		}
		allocations[pod.PodUID] = adopted
	}
	return withheld
}

// isListed reports whether the API server has the pod, which has not ended.
func (c *candidate) isListed(known Pods) bool { return c.listed && known.Active(c.PodUID) }

// mayRun reports whether the pod may still use its devices, although the API server does not have
// it or it has ended.
func (c *candidate) mayRun(running map[string]grants.RuntimeState) bool {
	return running[c.PodUID].Live || !c.gone && !c.listed
}

// unverified returns why it is not certain that the pod holds the devices of the allocation, which
// is to be adopted, or nothing.
func (c *candidate) unverified(
	adopted *grants.Allocation, known Pods, running map[string]grants.RuntimeState,
	allocations map[string]*grants.Allocation,
) string {
	previous := allocations[c.PodUID]
	switch {
	case previous != nil && previous.Adopted:
	case previous != nil:
		return fmt.Sprintf("pod %s holds it by the kubelet, and others by the scheduler; delete the pod",
			previous.Pod())
	case c.isListed(known):
	case running[c.PodUID].Live && c.listed:
		return fmt.Sprintf("a container of pod %s, which has ended, still runs", c.Pod())
	case running[c.PodUID].Live:
		return fmt.Sprintf("pod %s/%s, to which the kubelet allocated it, is not the API server's; remove it",
			running[c.PodUID].Namespace, running[c.PodUID].Name)
	default:
		return fmt.Sprintf("whether the pod with UID %q, to which the kubelet allocated it, is still there is known "+
			"when the API server has listed the node's pods", c.PodUID)
	}
	others := maps.Clone(allocations)
	delete(others, c.PodUID)
	holds := adopted.Holds()
	if conflict := grants.FindConflict(holds, others, oneOfEach(holds)); conflict != nil {
		return fmt.Sprintf("pod %s, to which the kubelet allocated it, is not its only holder: %v", adopted.Pod(),
			conflict)
	}
	if _, err := deviceinfo.EncodePod(adopted.PodInfo); err != nil {
		// It could be written, and not read again.
		return fmt.Sprintf("what the kubelet allocated to pod %s cannot be recorded: %v; delete the pod", adopted.Pod(),
			err)
	}
	return ""
}

// oneOfEach returns the capacity of devices of the kubelet, of each of which there is one; it
// knows no other resource.
func oneOfEach(devices types.ResourceList) grants.Capacity {
	return func(name types.ResourceName) (quantity int64, known bool) {
		if _, known = devices[name]; known {
			quantity = 1
		}
		return quantity, known
	}
}

// without returns an adopted allocation without what its containers have by these entries. It is
// the same one if that is nothing.
func without(allocation *grants.Allocation, kubelets map[entry]bool) *grants.Allocation {
	pod := allocation.PodInfo.Clone()
	changed := false
	for _, containers := range []map[string]types.ContainerInfo{pod.InitContainers, pod.RunningContainers} {
		for name, info := range containers {
			for request, from := range info.AllocateFrom {
				d, ok := kubeletdevice.Parse(from)
				if ok && kubelets[entry{allocation.PodUID, name, d.Resource}] {
					delete(info.AllocateFrom, request)
					delete(info.DevRequests, request)
					changed = true
				}
			}
			if len(info.AllocateFrom) == 0 {
				delete(containers, name)
			}
		}
	}
	if !changed {
		return allocation
	}
	kept := *allocation
	kept.PodInfo = pod
	return &kept
}

// merged returns an adopted allocation with what the kubelet allocated to the pod of resources that
// have moved since. Of a container and resource that it has, it stays as it is.
func merged(previous, found *grants.Allocation) *grants.Allocation {
	pod := previous.PodInfo.Clone()
	for _, list := range []struct {
		to, from map[string]types.ContainerInfo
	}{
		{pod.InitContainers, found.PodInfo.InitContainers}, {pod.RunningContainers, found.PodInfo.RunningContainers},
	} {
		for name, info := range list.from {
			has, ok := list.to[name]
			if !ok {
				has = *types.NewContainerInfo()
				list.to[name] = has
			}
			known := resourcesOf(has.AllocateFrom)
			for request, from := range info.AllocateFrom {
				if d, ok := kubeletdevice.Parse(from); ok && !known[d.Resource] {
					has.AllocateFrom[request], has.DevRequests[request] = from, info.DevRequests[request]
				}
			}
		}
	}
	more := *previous
	more.PodInfo = pod
	return &more
}

func resourcesOf(from types.ResourceLocation) map[types.ResourceName]bool {
	resources := map[types.ResourceName]bool{}
	for _, name := range from {
		if d, ok := kubeletdevice.Parse(name); ok {
			resources[d.Resource] = true
		}
	}
	return resources
}

// sameDevices reports whether the containers of two allocations have the same devices.
func sameDevices(a, b *grants.Allocation) bool {
	same := func(a, b types.ContainerInfo) bool { return maps.Equal(a.AllocateFrom, b.AllocateFrom) }
	return maps.EqualFunc(a.PodInfo.InitContainers, b.PodInfo.InitContainers, same) &&
		maps.EqualFunc(a.PodInfo.RunningContainers, b.PodInfo.RunningContainers, same)
}
