// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package grants keeps the node's checkpoint of which pod holds which device.
//
// The first allocation that the node grants to a pod is final: also when the pod's annotation
// changes later, the pod's containers get the same devices again. An allocation counts until the
// pod is really gone: the runtime has no ready sandbox and no running container of it, and the API
// server does not have it either, or has it as succeeded or failed. So a device that one pod uses
// up is never granted to a second live pod, also when schedulers or annotations say so. A device
// whose groups have changed is found by its lowest level, its ID and the resource.
//
// The one exception are devices that this node reported as unhealthy: where it requested others
// from the scheduler, the next generation of the allocation takes the place of the one before, for
// these containers alone. What they had stays held until they have ended. See [Checkpoint.Replace].
//
// The checkpoint is a file, see package statefile. It is not the only copy: every container with
// devices carries its own part of the allocation as a signed annotation in the runtime, see
// [Annotation], and the checkpoint is completed from there before the first grant after a start. So
// a lost or corrupt file costs the names of requests, the order of init containers (a pod is then
// taken to hold the most that it might) and what containers hold that were never created: those
// must claim it again.
//
// A pod may hold devices that it was allocated by others than the scheduler. An [Origin] knows
// them, and has them in the checkpoint like the others, for as long as the pod is there. The
// containers of such an adopted pod get nothing from here.
//
// What kubelet device plugins answered to Allocate is in a second file, and the key that signs the
// annotations in a third.
package grants

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Allocation is what was granted to one pod on this node.
type Allocation struct {
	// PodUID identifies the pod; namespace and name are for people.
	PodUID    string `json:"podUID"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Since is when it was granted.
	Since time.Time `json:"since"`
	// InitOrder are the pod's init containers, sidecars included, in the order in which they start.
	// It is empty in an allocation that v0.1.0 wrote, and in one that came back from the runtime.
	InitOrder []string `json:"initOrder,omitempty"`
	// Partial says that it came back from the runtime, and has only the containers that were
	// created before. Others may be granted theirs.
	Partial bool `json:"partial,omitempty"`
	// Adopted says that the allocation is that of an [Origin].
	Adopted bool `json:"adopted,omitempty"`
	// Signed says that a release granted it that signs what containers carry. v0.1.0, which does
	// not, drops the field from the file.
	Signed bool `json:"signed,omitempty"`
	// PodInfo is the allocation as the scheduler made it. It must not be changed.
	PodInfo *types.PodInfo `json:"decision"`
	// Generation is that of the allocation's seal, and 0 for one without.
	Generation int64 `json:"generation,omitempty"`
	// Pending are the containers for which the node requests other devices, or did. It must not be
	// changed.
	Pending map[string]PendingReplacement `json:"asked,omitempty"`
	// Refused is the highest generation to which the node has requested another one, as it could
	// not use it; 0 without any. The node may use it later: then the other one is on its way.
	Refused int64 `json:"refused,omitempty"`
	// Leaving is what containers had before their devices were replaced, for as long as they may
	// still use it. It must not be changed.
	Leaving map[string]types.ContainerInfo `json:"leaving,omitempty"`
	// Waits says that the pod was not granted the allocation, as a device of it cannot be used.
	Waits bool `json:"-"`
	// Waiting are the containers of a pod which was granted it that were refused since, as a device
	// of them could not be used. They may have been created meanwhile.
	Waiting []string `json:"-"`
}

// IsAwaited reports whether the container waits for its devices, or did.
func (a *Allocation) IsAwaited(container string) bool {
	return a.Waits || slices.Contains(a.Waiting, container)
}

// Pod returns the pod's name for people.
func (a *Allocation) Pod() string { return a.Namespace + "/" + a.Name }

// Lacks reports whether the container was not there when the allocation came back from the runtime,
// so that what it is to have is not known.
func (a *Allocation) Lacks(container string) bool {
	return a.Partial && a.PodInfo.GetContainerInPod(container) == nil
}

// Holds returns the most that the pod holds of each of the node's resources while it runs, by the
// scheduler's formula. Masks of enum resources are not quantities and are left out.
func (a *Allocation) Holds() types.ResourceList {
	holds := grouptree.Holdings(a.PodInfo, a.startOrder())
	if len(a.Leaving) > 0 {
		grouptree.Take(holds, grouptree.Holdings(&types.PodInfo{RunningContainers: a.Leaving}, nil))
	}
	return holds
}

// startOrder returns the pod's containers in the order in which they start, as far as that matters
// to what it holds. Where the order is not known, all containers that run along with others come
// first: that is never too little.
func (a *Allocation) startOrder() []grouptree.Container {
	for name := range a.PodInfo.InitContainers {
		if !slices.Contains(a.InitOrder, name) {
			return sidecars(slices.Sorted(maps.Keys(a.PodInfo.RunningContainers)))
		}
	}
	order := sidecars(a.InitOrder)
	for i := range order {
		if _, runsAlone := a.PodInfo.InitContainers[order[i].Name]; runsAlone {
			order[i].Kind = grouptree.Init
		}
	}
	return order
}

func sidecars(names []string) []grouptree.Container {
	containers := make([]grouptree.Container, 0, len(names))
	for _, name := range names {
		containers = append(containers, grouptree.Container{Name: name, Kind: grouptree.Sidecar})
	}
	return containers
}

// sorted returns the allocations in the order in which people read them.
func sorted(allocations map[string]*Allocation) []Allocation {
	list := make([]Allocation, 0, len(allocations))
	for _, a := range allocations {
		list = append(list, *a)
	}
	slices.SortFunc(list, func(a, b Allocation) int {
		return cmp.Or(
			cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.PodUID, b.PodUID),
		)
	})
	return list
}
