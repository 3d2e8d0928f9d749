// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// PendingReplacement is a request to the scheduler to give a container other devices.
type PendingReplacement struct {
	// Since is when the node requested it.
	Since time.Time `json:"since"`
	// Withdrawn says that the node requests it no more. An answer that was on its way counts all
	// the same: the scheduler counts what it has written.
	Withdrawn bool `json:"withdrawn,omitempty"`
}

// Replacement is the next generation of a pod's allocation.
type Replacement struct {
	PodUID     string
	Generation int64
	// Containers are those that get other devices, each with all that it is to have. The node must
	// have requested each of them. It must not be changed.
	Containers map[string]types.ContainerInfo
}

// RequestReplacement notes that the node requests other devices for these containers of the pod,
// and for no others any more. generation is that of the allocation whose devices have failed: for a
// pod that has a later one nothing changes, as what it has now may be healthy. It returns since
// when it requests all of them. Nothing may be published that is not on disk: only an answer to
// what was requested counts.
func (c *Checkpoint) RequestReplacement(
	podUID string, generation int64, containers []string,
) (since time.Time, err error) {
	c.changing.Lock()
	defer c.changing.Unlock()
	next := maps.Clone(c.current())
	before, ok := next[podUID]
	if !ok {
		return time.Time{}, fmt.Errorf("request other devices for the pod with UID %q: %w", podUID, ErrNotGranted)
	}
	now := time.Now().UTC()
	if before.Generation != generation {
		return now, nil
	}
	pending := map[string]PendingReplacement{}
	for name, request := range before.Pending {
		request.Withdrawn = true
		pending[name] = request
	}
	for _, name := range containers {
		request, known := before.Pending[name]
		if !known || request.Withdrawn {
			request = PendingReplacement{Since: now}
		}
		if pending[name] = request; request.Since.After(since) {
			since = request.Since
		}
	}
	if maps.Equal(pending, before.Pending) {
		return since, nil
	}
	after := *before
	after.Pending = pending
	next[podUID] = &after
	return since, c.replace(next)
}

// Refuse notes that the node requests a higher generation of the pod's allocation than this one,
// which it cannot use. Nothing may be published that is not on disk: the scheduler's answer counts,
// also when the node uses this generation after all.
func (c *Checkpoint) Refuse(podUID string, generation int64) error {
	c.changing.Lock()
	defer c.changing.Unlock()
	before, ok := c.current()[podUID]
	switch {
	case !ok:
		return fmt.Errorf("refuse devices for the pod with UID %q: %w", podUID, ErrNotGranted)
	case generation <= max(before.Refused, before.Generation):
		return nil
	}
	next, after := maps.Clone(c.current()), *before
	after.Refused = generation
	next[podUID] = &after
	return c.replace(next)
}

// Replace gives containers of a pod other devices. What they had stays with the pod, as Leaving,
// until Release. A generation that is not higher than the one that the pod has changes nothing.
// Nothing is granted before it is on disk. An error that is a *Conflict says that others hold the
// devices, or the pod's own containers still do.
func (c *Checkpoint) Replace(r Replacement, capacity Capacity) (Allocation, error) {
	c.changing.Lock()
	defer c.changing.Unlock()
	next := maps.Clone(c.current())
	before, ok := next[r.PodUID]
	switch {
	case !ok:
		return Allocation{}, fmt.Errorf("replace devices of the pod with UID %q: %w", r.PodUID, ErrNotGranted)
	case r.Generation <= before.Generation:
		return *before, nil
	}
	after, err := before.applyReplacement(r)
	if err != nil {
		return Allocation{}, err
	}
	delete(next, r.PodUID)
	only := *after
	if only.Leaving = nil; len(after.Leaving) > 0 {
		// Not even a container of the same pod gets what another one may still use.
		next[""] = &Allocation{PodUID: after.PodUID, Namespace: after.Namespace, Name: after.Name,
			PodInfo: &types.PodInfo{RunningContainers: after.Leaving}}
	}
	replaced := func(name string) bool { _, ok := r.Containers[name]; return ok }
	if conflict := FindConflict(heldBy(&only, replaced), next, capacity); conflict != nil {
		return Allocation{}, conflict
	}
	delete(next, "")
	next[r.PodUID] = after
	if err := c.replace(next); err != nil {
		return Allocation{}, err
	}
	return *after, nil
}

// errNotRequested is why a generation does not count.
var errNotRequested = errors.New("the node did not request it")

// applyReplacement returns the allocation that follows, with the replacement.
func (a *Allocation) applyReplacement(r Replacement) (*Allocation, error) {
	after, pod := *a, *a.PodInfo
	after.Generation, after.PodInfo = r.Generation, &pod
	after.Pending, after.Leaving = maps.Clone(a.Pending), map[string]types.ContainerInfo{}
	maps.Copy(after.Leaving, a.Leaving)
	pod.RunningContainers = maps.Clone(pod.RunningContainers)
	for name, now := range r.Containers {
		had, running := pod.RunningContainers[name]
		request, isPending := a.Pending[name]
		if !isPending || !running {
			return nil, fmt.Errorf("replace devices of container %q of pod %q: %w", name, a.Pod(), errNotRequested)
		}
		if delete(after.Pending, name); r.Generation <= a.Refused {
			request.Withdrawn = true
			after.Pending[name] = request
		}
		pod.RunningContainers[name] = now
		leaving := leavingDevices(now, had, a.Leaving[name])
		if delete(after.Leaving, name); len(leaving.AllocateFrom) > 0 {
			after.Leaving[name] = leaving
		}
	}
	return &after, nil
}

// leavingDevices returns the resources of the lists that the container does not have now. The names
// of requests are those of the resources.
func leavingDevices(now types.ContainerInfo, lists ...types.ContainerInfo) types.ContainerInfo {
	has := map[types.ResourceName]bool{}
	for _, from := range now.AllocateFrom {
		has[from] = true
	}
	left := types.ContainerInfo{DevRequests: types.ResourceList{}, AllocateFrom: types.ResourceLocation{}}
	for _, list := range lists {
		sums := types.ResourceList{}
		for request, from := range list.AllocateFrom {
			if !has[from] {
				sums[from] += list.DevRequests[request]
			}
		}
		for from, quantity := range sums { // a container never held both lists at once
			left.DevRequests[from] = max(left.DevRequests[from], quantity)
			left.AllocateFrom[from] = from
		}
	}
	return left
}

// Release notes that the container holds nothing any more of what it had before its devices were
// replaced.
func (c *Checkpoint) Release(podUID, container string) error {
	c.changing.Lock()
	defer c.changing.Unlock()
	next := maps.Clone(c.current())
	before, ok := next[podUID]
	if !ok {
		return nil
	}
	if _, leaving := before.Leaving[container]; !leaving {
		return nil
	}
	after := *before
	after.Leaving = maps.Clone(before.Leaving)
	delete(after.Leaving, container)
	next[podUID] = &after
	return c.replace(next)
}
