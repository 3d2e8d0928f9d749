// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
	podrequest "github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/request/names"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/pkg/seal"
)

// syncTimeout is how long a container waits for plugins that have not reported their devices yet.
const syncTimeout = 5 * time.Second

// errNotAllKnown is why a pod that requests extended resources waits on a node that was never
// complete.
var errNotAllKnown = errors.New(
	"it requests extended resources, and whether they are devices of this node is not known: " +
		"not all device plugins work, and the API server has not shown the node yet; see kubecri's /readyz",
)

// verify reports whether the pod is a device pod. It finds what the pod was granted before, or
// verifies, for all its containers, the allocation that it claims.
func (a *Admission) verify(ctx context.Context, r *request) (devicePod bool, err error) {
	if err := a.remembered(r.podRef); err != nil {
		return false, err
	}
	if r.spec, devicePod, err = a.isDevicePod(ctx, r.podRef); err != nil || !devicePod {
		return false, err
	}
	granted, ok, err := a.Grants.Granted(ctx, r.uid)
	if err != nil {
		return false, unavailable(err)
	}
	// What came back from the runtime does not have containers that were never created.
	if ok && !granted.Lacks(r.container) {
		if _, requested := granted.Pending[r.container]; requested {
			granted = a.takeAnswer(ctx, r, granted)
		}
		r.granted = &granted
		if granted.Adopted {
			return true, a.verifyAdopted(r)
		}
		return true, nil
	}
	// The checkpoint may have lost the pod meanwhile, which was a device pod because of it.
	if r.spec, err = a.Pods.Lookup(ctx, r.uid); err != nil {
		return false, unavailable(err)
	}
	if err := a.verifyClaim(ctx, r, a.verifySeal); err != nil {
		a.Waiting.note(r, err)
		return false, a.Refusals.remember(r.podRef, err)
	}
	return true, nil
}

// verifyClaim verifies, for all containers of the pod, the allocation that it claims; sealed checks
// its seal. It has no side effects but those of sealed.
func (a *Admission) verifyClaim(ctx context.Context, r *request, sealed func(*request) error) error {
	written, err := r.annotation()
	if err == nil {
		r.claimed, err = r.spec.BoundTo(a.NodeName).Allocation(written)
	}
	if err != nil {
		return failedPreconditionOn(basedOnAnnotation, err)
	}
	if err := sealed(r); err != nil {
		return err
	}
	inventory, _ := a.Devices.Inventory()
	containers := containersOf(r.claimed)
	for _, name := range slices.Sorted(maps.Keys(containers)) {
		if err := a.wellFormed(name, containers[name], r.spec.Requests[name]); err != nil {
			return failedPreconditionOn(basedOnAnnotation, err)
		}
		if err := a.verifyContainer(ctx, r.spec, name, containers[name].AllocateFrom); err != nil {
			return err
		}
	}
	if err := deviceinfo.CheckContainers(r.claimed); err != nil {
		return failedPreconditionOn(basedOnAnnotation, err)
	}
	r.claimed = withoutRequests(r.claimed)
	r.verified = verification{r.claimed, inventory}
	return nil
}

// remembered returns the refusal of a pod that was refused before, if nothing has changed since
// that it depends on; otherwise nil.
func (a *Admission) remembered(pod podRef) error {
	cause := a.Refusals.get(pod)
	if cause == nil && a.sealMode() == seal.Enforce {
		cause = a.Refusals.getSealed(pod)
	}
	if cause == nil || a.Grants.Has(pod.uid) {
		return nil
	}
	return failedPrecondition(cause)
}

// withoutRequests returns an allocation without what the user wrote, which counts for nothing any
// more and may be long.
func withoutRequests(pod *types.PodInfo) *types.PodInfo {
	only := func(containers map[string]types.ContainerInfo) map[string]types.ContainerInfo {
		allocated := make(map[string]types.ContainerInfo, len(containers))
		for name, info := range containers {
			allocated[name] = types.ContainerInfo{DevRequests: info.DevRequests, AllocateFrom: info.AllocateFrom}
		}
		return allocated
	}
	return &types.PodInfo{
		Name: pod.Name, NodeName: pod.NodeName,
		InitContainers: only(pod.InitContainers), RunningContainers: only(pod.RunningContainers),
	}
}

// isDevicePod reports whether the pod is a device pod, and what is known of its spec. A pod with
// granted devices is one, whatever its annotation says now, and does not wait for the API server.
func (a *Admission) isDevicePod(ctx context.Context, pod podRef) (spec pods.Pod, is bool, err error) {
	if !pod.fromAPI {
		return pods.Pod{}, false, nil
	}
	if a.Grants.Has(pod.uid) {
		spec, _ = a.Pods.Get(pod.uid)
		return spec, true, nil
	}
	if spec, err = a.Pods.Lookup(ctx, pod.uid); err != nil {
		return pods.Pod{}, false, errRequestsUnknown(err)
	}
	resources, all := a.Pods.DeviceResources()
	if spec.RequestsOther(resources) {
		// It may be a device resource of a plugin that has not reported yet. No other pod waits for
		// a slow plugin.
		a.sync(ctx)
		resources, all = a.Pods.DeviceResources()
	}
	if !all && spec.RequestsOther(resources) {
		return pods.Pod{}, false, errRequestsUnknown(errNotAllKnown)
	}
	return spec, spec.RequestsAny(resources) || a.claimsDevices(pod, spec), nil
}

// sync waits until every plugin has reported, for syncTimeout at most.
func (a *Admission) sync(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	select {
	case <-a.Devices.Synced():
	case <-ctx.Done():
	}
}

// claimsDevices reports whether the pod's annotation requests devices, or may: a malformed one
// counts. It does not if it only counts what the pod's spec counts, too.
func (a *Admission) claimsDevices(pod podRef, spec pods.Pod) bool {
	info, err := pod.annotation()
	if err != nil {
		return true
	}
	if info == nil {
		return a.requestsByName(pod, spec)
	}
	for name, container := range containersOf(info) {
		if len(container.DevRequests)+len(container.AllocateFrom) > 0 {
			return true
		}
		if len(a.requestedBeyond(spec.Requests[name], container.Requests)) > 0 {
			return true
		}
	}
	return len(a.requestedBeyond(nil, info.Requests)) > 0 || a.requestsByName(pod, spec)
}

// requestsByName reports whether the pod requests parts of GPUs by the names of HAMi and KAI, on a
// node whose GPUs are ours: elsewhere, their own programs may serve it.
func (a *Admission) requestsByName(pod podRef, spec pods.Pod) bool {
	resources, _ := a.Pods.DeviceResources()
	return resources[names.GPUs] && (names.InAnnotations(pod.annotations) || spec.RequestsAny(names.Parts()))
}

// requestedBeyond returns those requests of an annotation that are for devices, beyond what a
// container's spec counts. The name of a count may be that of an option, which only the scheduler's
// plugins know, unless it has a dot or is that of a device resource of the node.
func (a *Admission) requestedBeyond(counted []types.ResourceName, requests types.ResourceList) []types.ResourceName {
	resources, _ := a.Pods.DeviceResources()
	return podrequest.ForDevices(requests, func(name types.ResourceName) bool {
		domain, _, _ := strings.Cut(string(name), "/")
		return podrequest.IsCount(name) && (resources[name] || strings.Contains(domain, ".")) &&
			!slices.Contains(counted, name)
	})
}

// containersOf returns all containers of a pod by name.
func containersOf(info *types.PodInfo) map[string]types.ContainerInfo {
	all := make(map[string]types.ContainerInfo, len(info.InitContainers)+len(info.RunningContainers))
	maps.Copy(all, info.InitContainers)
	maps.Copy(all, info.RunningContainers)
	return all
}

// wellFormed checks that each request of the container is met, and that each allocated resource is
// a device's and has a quantity, without which it would be held for free. counted is what its spec
// counts.
func (a *Admission) wellFormed(name string, container types.ContainerInfo, counted []types.ResourceName) error {
	for _, request := range slices.Sorted(maps.Keys(container.AllocateFrom)) {
		problem := ""
		switch {
		case !resource.IsGroupResourceName(container.AllocateFrom[request]):
			problem = "is no device resource: its name does not begin with " + types.DeviceGroupPrefix + "/"
		case container.DevRequests[request] <= 0:
			problem = "has no quantity in devrequests"
		default:
			continue
		}
		return fmt.Errorf("annotation %s: container %q is allocated %s for %s, which %s; %s",
			deviceinfo.Annotation, name, container.AllocateFrom[request], request, problem, scheduleAgain)
	}
	for _, request := range slices.Sorted(maps.Keys(container.DevRequests)) {
		if _, met := container.AllocateFrom[request]; !met && resource.IsGroupResourceName(request) {
			return errUnmet(name, request)
		}
	}
	if len(container.DevRequests)+len(container.AllocateFrom) > 0 {
		return nil
	}
	// The names in Requests are the user's; DevRequests is what the scheduler made of them.
	if left := a.requestedBeyond(counted, container.Requests); len(left) > 0 {
		return errUnmet(name, left[0])
	}
	return nil
}

func errUnmet(container string, request types.ResourceName) error {
	return fmt.Errorf("annotation %s: container %q requests %s and is allocated nothing for it; %s",
		deviceinfo.Annotation, container, request, scheduleAgain)
}

// verifyContainer checks that the container's devices are on this node and healthy, and that each
// device resource that it requests is served by one of them. It gives each device the name that it
// has now. It waits for devices of plugins that have not reported yet, or come late.
func (a *Admission) verifyContainer(
	ctx context.Context, spec pods.Pod, container string, from types.ResourceLocation,
) error {
	a.Devices.Await(ctx, from)
	for _, request := range slices.Sorted(maps.Keys(from)) {
		inventory, changed := a.Devices.Inventory()
		if _, known := inventory.Allocatable(from[request]); !known {
			a.sync(ctx)
			inventory, changed = a.Devices.Inventory()
			from[request] = grants.CurrentName(maps.Keys(inventory.Node.Capacity), from[request])
		}
		name := from[request]
		quantity, known := inventory.Allocatable(name)
		reason := cmp.Or(inventory.Missing(name), inventory.Withheld(name))
		switch {
		case reason != nil:
			return unusable{unavailable(fmt.Errorf("device resource %s of node %q cannot be used now: %w", name,
				a.NodeName, reason))}
		case !known:
			return unusable{failedPreconditionUntil(changed, fmt.Errorf("device resource %s is not on node %q (any "+
				"more); if it does not come back, %s", name, a.NodeName, scheduleAgain))}
		case quantity == 0:
			return unusable{failedPreconditionUntil(changed, fmt.Errorf("device resource %s of node %q exists but "+
				"must not be used, it may be unhealthy; if it does not recover, %s", name, a.NodeName, scheduleAgain))}
		}
	}
	// A container that requests two kinds of devices must not start with one.
	inventory, changed := a.Devices.Inventory()
	resources, _ := a.Pods.DeviceResources()
	for _, requested := range spec.Requests[container] {
		if resources[requested] && !inventory.Serves(requested, from) {
			return failedPreconditionUntil(changed, fmt.Errorf("container %q requests %s, but the pod's allocation "+
				"gives it no device of that plugin; %s", container, requested, scheduleAgain))
		}
	}
	return nil
}
