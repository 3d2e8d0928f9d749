// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"maps"
	"path"

	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// memory is the resource of a device whose quantity is a part of its memory, in bytes.
const memory = "memory"

// holding is what a container was allocated of one device.
type holding struct {
	whole  bool
	memory int64 // 0 for none
}

// share returns the holding as bytes of the device's memory.
func (h holding) share(total device.Reading) device.Reading {
	switch {
	case h.whole:
		return total
	case h.memory > 0:
		return device.Read(h.memory)
	}
	return device.Reading{}
}

// holdings returns what the containers of the grants hold, by device, under the names that the
// node's capacity has now. The identities have no ID. A container whose devices are replaced may
// still use those that it had.
func holdings(list []grants.Allocation, capacity types.ResourceList) map[string]map[Identity]holding {
	all := map[string]map[Identity]holding{}
	for _, grant := range list {
		for _, containers := range []map[string]types.ContainerInfo{
			grant.PodInfo.InitContainers, grant.PodInfo.RunningContainers, grant.Leaving,
		} {
			for name, container := range containers {
				identity := Identity{PodUID: grant.PodUID, Namespace: grant.Namespace, Pod: grant.Name, Name: name}
				for request, from := range container.AllocateFrom {
					add(all, identity, currentName(from, capacity), container.DevRequests[request], capacity)
				}
			}
		}
	}
	return all
}

// currentName returns the name that the node has now for a resource that was granted: the groups of
// a device are numbered again when the node discovers its devices again. A resource that the node
// has no more keeps its name.
func currentName(granted types.ResourceName, capacity types.ResourceList) types.ResourceName {
	if _, known := capacity[granted]; known {
		return granted
	}
	return grants.CurrentName(maps.Keys(capacity), granted)
}

// add adds a quantity of a resource to what a container holds.
func add(
	all map[string]map[Identity]holding, identity Identity, from types.ResourceName, quantity int64,
	capacity types.ResourceList,
) {
	if !resource.IsGroupResourceName(from) || resource.IsEnumResource(from) || quantity <= 0 {
		return
	}
	name := path.Dir(string(from))
	if all[name] == nil {
		all[name] = map[Identity]holding{}
	}
	h := all[name][identity]
	// Who has all there is of any resource has the device alone.
	most := capacity[from]
	h.whole = h.whole || most > 0 && quantity >= most
	if path.Base(string(from)) == memory {
		h.memory += quantity
	}
	all[name][identity] = h
}
