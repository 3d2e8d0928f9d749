// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// scheduleAgain is the next step where an allocation cannot be used: one is made once in a pod's life.
const scheduleAgain = "delete the pod to have it scheduled again"

// decision is what a device pod was given, for good.
type decision struct {
	grant grants.Allocation
	// pod is what is known of the pod's spec; it may be empty for a pod that was given devices before a restart.
	pod pods.Pod
}

// decide returns what the pod was given, and pins it if this is the first container. It returns nil for a pod that asks
// for no devices.
func (g *Gate) decide(ctx context.Context, s subject) (*decision, error) {
	pod, asks, err := g.asks(ctx, s)
	if err != nil || !asks {
		return nil, err
	}
	grant, pinned, err := g.Grants.Granted(ctx, s.uid)
	if err != nil {
		return nil, later(err)
	}
	if !pinned {
		// The record may have lost the pod meanwhile, and with it what was said of it here.
		if pod, err = g.Pods.Lookup(ctx, s.uid); err != nil {
			return nil, later(err)
		}
		if grant, err = g.pin(ctx, s, pod); err != nil {
			return nil, err
		}
	}
	return &decision{grant: grant, pod: pod}, nil
}

// asks reports whether the pod is a device pod, and what is known of it. A pod on record is one, whatever its annotation has
// become, and needs no waiting for the API server.
func (g *Gate) asks(ctx context.Context, s subject) (pod pods.Pod, asks bool, err error) {
	if !s.fromAPI() {
		return pods.Pod{}, false, nil
	}
	if g.Grants.Has(s.uid) {
		pod, _ := g.Pods.Get(s.uid)
		return pod, true, nil
	}
	if pod, err = g.Pods.Lookup(ctx, s.uid); err != nil {
		return pods.Pod{}, false, undecided(err)
	}
	resources, told := g.deviceResources()
	if pod.AsksForOthers(resources) {
		// Whose resources these are is not known before every plugin has spoken. Nobody else waits for a plugin that is slow.
		g.settle(ctx)
		resources, told = g.deviceResources()
	}
	if !told && pod.AsksForOthers(resources) {
		return pods.Pod{}, false, undecided(errNotTold)
	}
	return pod, claimsDevices(s) || len(pod.AsksFor(resources)) > 0, nil
}

// errNotTold is why a pod that requests extended resources waits on a node that has no past.
var errNotTold = errors.New("it requests extended resources, and whether they are devices of this node is not known: " +
	"not all device plugins work, and the API server has not shown the node yet; see kubecri's /readyz")

// deviceResources returns the names of the extended resources that device plugins stand behind, now or when they were well,
// and whether there can be no others.
func (g *Gate) deviceResources() (names map[string]bool, told bool) {
	names, told = g.Pods.DeviceResources()
	inventory, _ := g.Devices.Inventory()
	for _, name := range inventory.ExtendedResources() {
		names[string(name)] = true
	}
	return names, told || inventory.Complete
}

// claimsDevices reports whether the pod's annotation asks for devices, or might: one that cannot be read counts.
func claimsDevices(s subject) bool {
	value, annotated := s.annotations[deviceinfo.Annotation]
	if !annotated {
		return false
	}
	info, err := deviceinfo.DecodePod(value)
	if err != nil || len(info.Requests) > 0 {
		return true
	}
	for _, container := range containersOf(info) {
		if len(container.Requests)+len(container.DevRequests)+len(container.AllocateFrom) > 0 {
			return true
		}
	}
	return false
}

// containersOf returns all containers of a pod by name.
func containersOf(info *types.PodInfo) map[string]types.ContainerInfo {
	all := maps.Clone(info.InitContainers)
	if all == nil {
		all = map[string]types.ContainerInfo{}
	}
	maps.Copy(all, info.RunningContainers)
	return all
}

// pin checks what the annotation says was allocated to the pod, and grants it.
func (g *Gate) pin(ctx context.Context, s subject, pod pods.Pod) (grants.Allocation, error) {
	allocation, err := deviceinfo.PodAllocation(pod.On(g.NodeName, s.annotations))
	if err != nil {
		return grants.Allocation{}, never(err)
	}
	containers := containersOf(allocation)
	for _, name := range slices.Sorted(maps.Keys(containers)) {
		if err := wellFormed(name, containers[name]); err != nil {
			return grants.Allocation{}, err
		}
		if err := g.present(ctx, containers[name].AllocateFrom); err != nil {
			return grants.Allocation{}, err
		}
		// Here too, for the whole pod: when a container is created again, the pod's spec may not be known.
		if err := g.served(pod, name, containers[name].AllocateFrom); err != nil {
			return grants.Allocation{}, err
		}
	}
	inventory, _ := g.Devices.Inventory()
	wanted := grants.Allocation{PodUID: s.uid, Namespace: s.namespace, Name: s.name, InitOrder: pod.InitOrder(), PodInfo: allocation}
	grant, err := g.Grants.Grant(ctx, wanted, inventory.Grantable)
	var conflict *grants.Conflict
	switch {
	case errors.As(err, &conflict):
		return grants.Allocation{}, never(err)
	case err != nil:
		return grants.Allocation{}, later(err)
	}
	klog.FromContext(ctx).V(2).Info("A pod is granted devices", "pod", klog.KRef(s.namespace, s.name), "podUID", s.uid)
	return grant, nil
}

// wellFormed demands that each request of the container was met, and that each allocated resource is a device's and has a
// quantity, without which it would be held for free.
func wellFormed(name string, container types.ContainerInfo) error {
	for _, request := range slices.Sorted(maps.Keys(container.AllocateFrom)) {
		if !resource.IsGroupResourceName(container.AllocateFrom[request]) {
			return never(fmt.Errorf("annotation %s: container %q is allocated %s for %s, which is no device resource: its name does not begin with %s/; %s",
				deviceinfo.Annotation, name, container.AllocateFrom[request], request, types.DeviceGroupPrefix, scheduleAgain))
		}
		if container.DevRequests[request] <= 0 {
			return never(fmt.Errorf("annotation %s: container %q is allocated %s for %s, which has no quantity in devrequests; %s",
				deviceinfo.Annotation, name, container.AllocateFrom[request], request, scheduleAgain))
		}
	}
	for _, request := range slices.Sorted(maps.Keys(container.DevRequests)) {
		if _, met := container.AllocateFrom[request]; !met && resource.IsGroupResourceName(request) {
			return unmet(name, request)
		}
	}
	// The names in Requests are the user's; DevRequests is what the scheduler made of them.
	for _, request := range slices.Sorted(maps.Keys(container.Requests)) {
		if len(container.AllocateFrom) == 0 && resource.IsGroupResourceName(request) {
			return unmet(name, request)
		}
	}
	return nil
}

func unmet(container string, request types.ResourceName) error {
	return never(fmt.Errorf("annotation %s: container %q asks for %s and is allocated nothing for it; %s",
		deviceinfo.Annotation, container, request, scheduleAgain))
}
