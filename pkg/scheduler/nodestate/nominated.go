// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/scheduler/allocation"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// withNominated returns the state with the nominated pods placed on it, one after another, for
// another pod. It adds to present, what pods hold, what these will.
//
// One that does not fit yet comes when the pods have gone that were evicted for it. Until then, no
// other pod may take what some of them have left already.
func (c *Cache) withNominated(
	ctx context.Context, inv *inventory, mine *allocation.Inventory, current *state, present map[types.UID]holder,
	pod types.UID,
) (*allocation.Node, error) {
	devices, err := c.schedulers.Node(ctx, mine, inOrder(present))
	promised := map[types.UID]holder{} // to nominated pods, what others still hold included
	var left sdk.ResourceList          // of what those hold that end, what is promised to none
	for _, nominated := range current.nominated {
		if err != nil {
			return nil, err
		}
		if nominated.UID == pod {
			continue
		}
		theirs, on := mine, devices
		if theirs, err = inv.devicesFor(ctx, c.schedulers, nominated); err == nil && theirs != mine {
			on, err = c.schedulers.Node(ctx, theirs, inOrder(present))
		}
		if err != nil {
			return nil, err
		}
		placed := c.simulate(ctx, on, nominated)
		now := placed
		if placed == nil && len(current.ending) > 0 {
			staying := maps.Clone(present)
			maps.Copy(staying, promised)
			for _, uid := range current.ending {
				delete(staying, uid)
			}
			if on, err = c.schedulers.Node(ctx, theirs, inOrder(staying)); err != nil {
				return nil, err
			}
			if placed = c.simulate(ctx, on, nominated); placed != nil {
				if left == nil {
					left = current.heldByEnding(mine)
				}
				now = allocation.NewHolder(placed.UID, subtractHeld(placed.Pod, left), request.Containers(nominated))
			}
		}
		if placed != nil {
			promised[nominated.UID], present[nominated.UID] = holder{Holder: placed}, holder{Holder: now}
			devices, err = c.schedulers.Node(ctx, mine, inOrder(present))
		}
	}
	return devices, err
}

// simulate places a nominated pod. It returns nil when the pod requests no device, or will not come
// because it does not fit.
func (c *Cache) simulate(ctx context.Context, devices *allocation.Node, nominated *v1.Pod) *allocation.Holder {
	request, err := c.Requests.Read(nominated)
	if err != nil || request == nil {
		return nil
	}
	allocated, err := c.schedulers.Allocate(ctx, devices, request)
	if err != nil {
		return nil
	}
	return allocation.NewHolder(string(nominated.UID), allocated, request.Containers)
}

// subtractHeld returns an allocation less what others hold, and takes that off from what is left of
// it: plugins are to take no device twice. Init containers run before the others, and one by one.
func subtractHeld(allocated *sdk.PodInfo, left sdk.ResourceList) *sdk.PodInfo {
	rest := allocated.Clone()
	for _, container := range rest.InitContainers {
		takeOff(container, maps.Clone(left))
	}
	for _, container := range rest.RunningContainers {
		takeOff(container, left)
	}
	return rest
}

func takeOff(container sdk.ContainerInfo, left sdk.ResourceList) {
	for request, from := range container.AllocateFrom {
		both := min(left[from], container.DevRequests[request])
		left[from] -= both
		if container.DevRequests[request] -= both; container.DevRequests[request] == 0 {
			delete(container.DevRequests, request)
			delete(container.AllocateFrom, request)
		}
	}
}
