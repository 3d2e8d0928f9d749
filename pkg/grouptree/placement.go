// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import (
	"maps"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Placement is the answer for one request on one node. It is immutable: a cache returns the same
// one to many callers.
type Placement struct {
	// Fits reports whether there is a placement.
	Fits bool
	// Score is the score of the node with the pod on it, from 0 (bad) to 1 (good). It is 0 when the
	// pod does not fit.
	Score float64
	// Assigned is the number of the resource that serves each request, in the request's canonical
	// order. It is empty when the pod does not fit.
	Assigned []int32
	// Exceeds reports that the pod holds more than Kubernetes counts for it: an init container
	// could not share the devices of others. No placement was found by which it holds as much or
	// less.
	Exceeds bool
	// Exact reports that the walk failed and the exact search answered.
	Exact bool
	// LimitHit reports that one of the limits ended the search. If the pod fits, there may be a
	// better placement; if it does not, there may be a placement.
	LimitHit bool
	// TimedOut reports that this was the time limit: a later search may get further.
	TimedOut bool
	// Steps is the work of walk and search, at most the limit of steps.
	Steps int
}

// Apply writes a placement that fits into the AllocateFrom of the pod's containers. The pod is the
// one of the compiled request, or a copy of it. Apply replaces the pod's maps and does not change
// them, as other copies may share them.
func (r *Request) Apply(tree *DeviceTree, p *Placement, pod *types.PodInfo) {
	if !p.Fits {
		return
	}
	pod.RunningContainers = withLocations(pod.RunningContainers)
	pod.InitContainers = withLocations(pod.InitContainers)
	for _, ctr := range r.containers {
		containers := pod.RunningContainers
		if ctr.kind == Init {
			containers = pod.InitContainers
		}
		info := containers[ctr.name]
		location := maps.Clone(info.AllocateFrom)
		for i := ctr.itemLo; i < ctr.itemHi; i++ {
			location[r.items[i].name] = tree.names[p.Assigned[i]]
		}
		info.AllocateFrom = location
		containers[ctr.name] = info
	}
}

// withLocations returns a copy in which no container's AllocateFrom is nil.
func withLocations(containers map[string]types.ContainerInfo) map[string]types.ContainerInfo {
	copied := maps.Clone(containers)
	for name, info := range copied {
		if info.AllocateFrom == nil {
			info.AllocateFrom = types.ResourceLocation{}
			copied[name] = info
		}
	}
	return copied
}
