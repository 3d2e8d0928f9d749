// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"fmt"
	"maps"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Capacity returns how much of a resource all pods of the node together may hold, and whether the
// node has it at all.
type Capacity func(types.ResourceName) (quantity int64, known bool)

// Conflict is the error of a grant of more than a device has. It names the holders.
type Conflict struct {
	// Resource is the node's resource that is short: the pod requests Requested of Capacity.
	Resource            types.ResourceName
	Requested, Capacity int64
	// Held is how much the Holders, which are sorted, hold together.
	Held    int64
	Holders []string

	uids []string // of the holders
}

// Error names resource, quantities, holders and the next step.
func (c *Conflict) Error() string {
	if len(c.Holders) == 0 {
		return fmt.Sprintf("%s: the pod was allocated %d, the node has %d; delete the pod to have it scheduled again",
			c.Resource, c.Requested, c.Capacity)
	}
	return fmt.Sprintf("%s: the pod was allocated %d, but of %d that the node has %d are held by %v; "+
		"it is tried again, and works when they are gone", c.Resource, c.Requested, c.Capacity, c.Held, c.Holders)
}

// findConflict returns the first resource, by name, that the pod cannot have beside the others, or
// nil.
func findConflict(wanted *Allocation, others map[string]*Allocation, capacity Capacity) *Conflict {
	requested := wanted.Holds()
	held := make(map[*Allocation]types.ResourceList, len(others))
	inUse := types.ResourceList{}
	for _, other := range others {
		held[other] = underCurrentNames(other.Holds(), requested, capacity)
		grouptree.Take(inUse, held[other])
	}
	for _, name := range slices.Sorted(maps.Keys(requested)) {
		quantity, _ := capacity(name)
		c := &Conflict{Resource: name, Requested: requested[name], Capacity: quantity, Held: inUse[name]}
		// Written so that no sum can overflow.
		if c.Requested <= c.Capacity && c.Held <= c.Capacity-c.Requested {
			continue
		}
		for other, holds := range held {
			if holds[name] > 0 {
				c.Holders = append(c.Holders, other.Pod())
				c.uids = append(c.uids, other.PodUID)
			}
		}
		slices.Sort(c.Holders)
		return c
	}
	return nil
}

// underCurrentNames returns what is held under the names that the node has now. A device keeps its
// ID, but the groups above it are numbered again when the node discovers its devices again: a name
// that the node has no more counts for each requested one of the same device.
func underCurrentNames(held, requested types.ResourceList, capacity Capacity) types.ResourceList {
	now := types.ResourceList{}
	for name, quantity := range held {
		if _, known := capacity(name); known {
			grouptree.Take(now, types.ResourceList{name: quantity})
			continue
		}
		for other := range requested {
			if SameResource(other, name) {
				grouptree.Take(now, types.ResourceList{other: quantity})
			}
		}
	}
	return now
}

// SameResource reports whether both are names of one resource of one device, whichever groups it is
// in.
func SameResource(a, b types.ResourceName) bool {
	pathA, errA := resource.ParsePath(a)
	pathB, errB := resource.ParsePath(b)
	if errA != nil || errB != nil {
		return a == b
	}
	return pathA.SameDevice(pathB) && pathA.Resource() == pathB.Resource()
}
