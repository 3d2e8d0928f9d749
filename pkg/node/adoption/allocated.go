// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"fmt"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/node/kubeletstate"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Resources are those of device plugins. *devicemanager.Manager has them.
type Resources interface {
	// TakenOver returns, for each resource that is taken over from the kubelet or about to be, the
	// names of its devices by their IDs.
	TakenOver() map[types.ResourceName]map[string]types.ResourceName
}

// allocated is what the kubelet allocated to a container of one resource before that moved here.
type allocated struct {
	podUID, container string
	devices           []types.ResourceName // sorted
}

// entry is a container for which the kubelet has allocated devices of a resource.
type entry struct {
	podUID, container string
	resource          types.ResourceName
}

// readAllocated reads, from the kubelet's checkpoint at path, what the kubelet allocated to
// containers of the resources that are taken over, and to which containers plugins at the kubelet
// gave devices of others. The kubelet keeps entries of pods that are gone until it next allocates a
// device. An error says that the first is unknown.
func readAllocated(path string, resources Resources) (list []allocated, kubelets map[entry]bool, err error) {
	taken := resources.TakenOver()
	state, err := kubeletstate.Read(path)
	if err != nil {
		if len(taken) == 0 {
			return nil, nil, nil
		}
		return nil, nil, err
	}
	kubelets = map[entry]bool{}
	for _, holding := range state.Holdings {
		if holding.Placeholder {
			continue
		}
		names := taken[holding.Resource]
		if names == nil {
			kubelets[entry{holding.PodUID, holding.Container, holding.Resource}] = true
			continue
		}
		a := allocated{podUID: holding.PodUID, container: holding.Container}
		for _, id := range holding.IDs {
			name, listed := names[id]
			if !listed {
				name, err = kubeletdevice.Name(kubeletdevice.Device{
					Resource: holding.Resource, ID: id, NUMA: holding.NUMA[id],
				})
				if err != nil {
					return nil, nil, fmt.Errorf("the kubelet's checkpoint: pod with UID %q: %w", holding.PodUID,
						err)
				}
			}
			a.devices = append(a.devices, name)
		}
		slices.Sort(a.devices)
		list = append(list, a)
	}
	return list, kubelets, nil
}
