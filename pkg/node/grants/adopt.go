// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/logkey"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Adoptable is what the kubelet gave to pods before the resources moved to this program.
type Adoptable struct {
	// Kubelets are the resources that the kubelet has by itself, because they have not moved, or
	// have moved back.
	Kubelets map[types.ResourceName]bool
	// Pods have the devices of those that have moved, each pod once. The kubelet remembers pods
	// that are gone, too, and may have forgotten others.
	Pods []AdoptablePod
}

// AdoptablePod is a pod that the kubelet gave devices to.
type AdoptablePod struct {
	// Allocation has the devices. Of a pod that is not listed it has the UID and PodInfo alone.
	Allocation
	// Listed says that the API server has the pod, or had it until lately.
	Listed bool
	// Gone says that the API server has listed all pods, and not this one.
	Gone bool
}

// adopt makes next have the pods of a that live, and what others hold of its devices withheld. It
// removes from next what was adopted of resources that have moved back.
//
// A pod is adopted if the API server has it and it holds nothing by the scheduler. The holder of a
// device is not certain if the pod is unknown, as a static pod is, which the scheduler sees under
// another UID; or if the pod has an allocation, too; or if another pod holds the device already.
func (c *Checkpoint) adopt(
	ctx context.Context, a Adoptable, states map[string]RuntimeState, next map[string]*Allocation,
) (withheld map[types.ResourceName]string) {
	logger := klog.FromContext(ctx)
	withheld = map[types.ResourceName]string{}
	for uid, allocation := range next {
		if allocation.Adopted {
			replaceAdopted(next, uid, without(allocation, a.Kubelets))
		}
	}
	for i := range a.Pods {
		found := a.Pods[i].Allocation
		before := next[found.PodUID]
		why := ""
		switch {
		case before != nil && before.Adopted:
			found = *merged(before, &found)
			if sameDevices(before, &found) {
				continue
			}
		case before != nil:
			why = fmt.Sprintf("pod %s holds it by the kubelet, and others by the scheduler; delete the pod",
				before.Pod())
		case a.Pods[i].Listed && c.active(found.PodUID):
		case states[found.PodUID].Live && a.Pods[i].Listed:
			why = fmt.Sprintf("a container of pod %s, which has ended, still runs", found.Pod())
		case states[found.PodUID].Live:
			state := states[found.PodUID]
			why = fmt.Sprintf("pod %s/%s, to which the kubelet gave it, is not the API server's; remove it",
				state.Namespace, state.Name)
		case !a.Pods[i].Gone && !a.Pods[i].Listed:
			why = fmt.Sprintf("whether the pod with UID %q, to which the kubelet gave it, is still there is known "+
				"when the API server has listed the node's pods", found.PodUID)
		default:
			continue // the kubelet has not noticed that the pod is gone
		}
		if why == "" {
			others := maps.Clone(next)
			delete(others, found.PodUID)
			holds := found.Holds()
			if conflict := findConflict(holds, others, oneOfEach(holds)); conflict != nil {
				why = fmt.Sprintf("pod %s, to which the kubelet gave it, is not its only holder: %v", found.Pod(),
					conflict)
			}
		}
		if _, err := deviceinfo.EncodePod(found.PodInfo); err != nil && why == "" {
			// It could be written, and not read again.
			why = fmt.Sprintf("what the kubelet gave to pod %s cannot be recorded: %v; delete the pod", found.Pod(),
				err)
		}
		if why != "" {
			for name := range found.Holds() {
				withheld[name] = why
			}
			continue
		}
		if before == nil {
			found.Since = time.Now().UTC()
			logger.Info("A pod is adopted that holds devices which the kubelet gave it", logkey.Pod, found.Pod(),
				logkey.PodUID, found.PodUID)
		}
		next[found.PodUID] = &found
	}
	return withheld
}

// oneOfEach returns the capacity of devices of the kubelet's, of each of which there is one; it
// knows no other resource.
func oneOfEach(devices types.ResourceList) Capacity {
	return func(name types.ResourceName) (quantity int64, known bool) {
		if _, known = devices[name]; known {
			quantity = 1
		}
		return quantity, known
	}
}

// replaceAdopted makes the allocation the pod's, unless it is empty: then the pod has none.
func replaceAdopted(next map[string]*Allocation, uid string, allocation *Allocation) {
	if len(allocation.PodInfo.InitContainers)+len(allocation.PodInfo.RunningContainers) == 0 {
		delete(next, uid)
		return
	}
	next[uid] = allocation
}

// without returns an adopted allocation without the devices of these resources. It is the same one
// if it has none.
func without(allocation *Allocation, resources map[types.ResourceName]bool) *Allocation {
	pod := allocation.PodInfo.Clone()
	changed := false
	for _, containers := range []map[string]types.ContainerInfo{pod.InitContainers, pod.RunningContainers} {
		for name, info := range containers {
			for request, from := range info.AllocateFrom {
				if d, ok := kubeletdevice.Parse(from); ok && resources[d.Resource] {
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

// merged returns an adopted allocation with what the kubelet gave to the pod of resources that have
// moved since. Of a container and resource that it has, it stays as it is.
func merged(before, found *Allocation) *Allocation {
	pod := before.PodInfo.Clone()
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
	more := *before
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
func sameDevices(a, b *Allocation) bool {
	same := func(a, b types.ContainerInfo) bool { return maps.Equal(a.AllocateFrom, b.AllocateFrom) }
	return maps.EqualFunc(a.PodInfo.InitContainers, b.PodInfo.InitContainers, same) &&
		maps.EqualFunc(a.PodInfo.RunningContainers, b.PodInfo.RunningContainers, same)
}

// Withheld returns the devices, by name, whose holders could not be named for certain when the
// checkpoint was last compared with the kubelet's, each with why not. It must not be changed.
func (c *Checkpoint) Withheld() map[types.ResourceName]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.withheld
}

// AdoptedContainer returns an allocation of a container of these devices, which an adopted pod has.
func AdoptedContainer(devices []types.ResourceName) types.ContainerInfo {
	info := types.NewContainerInfo()
	for _, name := range slices.Sorted(slices.Values(devices)) {
		info.DevRequests[name], info.AllocateFrom[name] = 1, name
	}
	return *info
}
