// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"context"
	"errors"
	"maps"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// ErrNotSearched is why there is no allocation within a budget that has nothing left.
var ErrNotSearched = errors.New("the node was not searched: the cycle's budget is used up")

// Allocate chooses the pod's devices on the node. It returns the request with DevRequests,
// AllocateFrom and NodeName set. It returns an error when the pod does not fit, because something
// has changed since Fit.
func (s *Set) Allocate(ctx context.Context, node *Node, request *request.Request) (*types.PodInfo, error) {
	return s.AllocateWithin(ctx, node, request, nil)
}

// AllocateWithin is Allocate within the budget of a cycle. An error wraps ErrNotSearched if nothing
// is left of it.
func (s *Set) AllocateWithin(
	ctx context.Context, node *Node, request *request.Request, budget *Budget,
) (*types.PodInfo, error) {
	if dropped := s.dropped(request, node.inventory); dropped != "" {
		return nil, errors.New(dropped)
	}
	t := s.partOf(request, node.inventory)
	if t.Empty() {
		return withWritten(t.named(request.Pod.Name, node.info.Name), request.Pod), nil
	}
	for _, plugin := range s.plugins {
		if !plugin.mayConcern(node.inventory, t) {
			continue
		}
		var err error
		if t, err = plugin.cachedAllocate(ctx, node, request, t); err != nil {
			return nil, err
		}
	}
	if err := node.missingFor(t); err != nil {
		return nil, err
	}
	left := s.remainder(t)
	var best placed
	switch {
	case left.err != nil:
		return nil, left.err
	case left.unserved != "":
		return nil, errors.New(left.unserved)
	case left.request != nil:
		within := s.rationed(budget)
		placement := s.groupScheduler.place(ctx, node, left.request, within)
		switch {
		case placement == nil:
			s.notSearched(within)
			return nil, ErrNotSearched
		case !placement.Fits:
			return nil, errors.New(s.groupScheduler.explain(node, left.request, placement, within).Text(s.displayNames))
		}
		var err error
		if best, err = s.refine(ctx, node, request, placed{t, left.request, placement, 0}, within); err != nil {
			return nil, err
		}
		t = best.translation
	}
	best.translation = t
	allocated := node.apply(best, request.Pod.Name)
	if missing := describeUnplaced(allocated); missing != "" {
		return nil, errors.New(missing)
	}
	return withWritten(allocated, request.Pod), nil
}

// withWritten returns an allocation in which the requests are all that the user wrote: a part for a
// node leaves out what is no device there.
func withWritten(allocated, written *types.PodInfo) *types.PodInfo {
	for _, lists := range [][2]map[string]types.ContainerInfo{
		{allocated.InitContainers, written.InitContainers}, {allocated.RunningContainers, written.RunningContainers},
	} {
		for name, info := range lists[0] {
			info.Requests = maps.Clone(lists[1][name].Requests)
			lists[0][name] = info
		}
	}
	return allocated
}

// apply returns what was translated and placed as an allocation on the node to a pod of that name.
func (n *Node) apply(p placed, pod string) *types.PodInfo {
	allocated := p.named(pod, n.info.Name)
	if p.placement != nil {
		p.request.Apply(n.inventory.tree, p.placement, allocated)
	}
	return allocated
}

// checkSize returns an error, for the events of a pod, if the devices that were chosen for one of
// its containers do not fit into the container's annotation in the container runtime.
func (n *Node) checkSize(p placed) error {
	devices := 0
	for _, list := range []map[string]types.ContainerInfo{p.Pod.InitContainers, p.Pod.RunningContainers} {
		for _, info := range list {
			devices += len(info.AllocateFrom)
		}
	}
	if p.placement != nil {
		devices += len(p.placement.Assigned)
	}
	if deviceinfo.FitsContainer(devices, n.inventory.longest) {
		return nil
	}
	return deviceinfo.CheckContainers(n.apply(p, ""))
}
