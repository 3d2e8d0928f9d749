// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"fmt"
	"iter"
	"math"

	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Capacity returns how much of a resource all pods of the node together may hold, and whether the
// node has it at all.
type Capacity func(types.ResourceName) (quantity int64, known bool)

// Conflict is the error of a grant of more than a device has, or of a device that a pod has alone.
// It names the holders.
type Conflict struct {
	// Resource is the node's resource that is short: the pod requests Requested of Capacity.
	Resource            types.ResourceName
	Requested, Capacity int64
	// Held is how much the Holders, which are sorted, hold together.
	Held    int64
	Holders []string
	// Alone says that Resource is not short, but that the pod or one of the holders has the device
	// alone: see usage.alone. Held is 0 then.
	Alone bool

	uids []string // of the holders
}

// Error names resource, quantities, holders and the next step.
func (c *Conflict) Error() string {
	if len(c.Holders) == 0 {
		return fmt.Sprintf("%s: the pod was allocated %d, the node has %d; delete the pod to have it scheduled again",
			c.Resource, c.Requested, c.Capacity)
	}
	if c.Alone {
		return fmt.Sprintf("%s: the pod was allocated %d, but %v hold other resources of this device, and a pod that "+
			"holds all there is of one of them has the device alone; it is tried again, and works when they are gone",
			c.Resource, c.Requested, c.Holders)
	}
	return fmt.Sprintf("%s: the pod was allocated %d, but of %d that the node has %d are held by %v; "+
		"it is tried again, and works when they are gone", c.Resource, c.Requested, c.Capacity, c.Held, c.Holders)
}

// heldBy returns what the pod holds of the resources of those containers, of all its containers
// together. What others of its containers have may be more than the node has by now, as a device
// that has failed is.
func heldBy(a *Allocation, containers func(name string) bool) types.ResourceList {
	holds, list := a.Holds(), types.ResourceList{}
	for _, all := range []map[string]types.ContainerInfo{a.PodInfo.InitContainers, a.PodInfo.RunningContainers} {
		for name, info := range all {
			for _, from := range info.AllocateFrom {
				if quantity, ok := holds[from]; ok && containers(name) {
					list[from] = quantity
				}
			}
		}
	}
	return list
}

// FindConflict returns the first of the requested resources, by name, that the node does not have
// next to what the others hold, by pod UID, or nil.
func FindConflict(requested types.ResourceList, others map[string]*Allocation, capacity Capacity) *Conflict {
	names := newRequestedNames()
	names.add(requested)
	used := newUsage(names)
	for _, other := range others {
		used.add(other, other.Holds(), capacity)
	}
	return used.conflict(requested, nil, capacity)
}

// devicesOf returns the devices of which something is held, by path, and whether that is all there
// is of one of the device's resources. Masks, of which there is no end, and resources of the node
// itself are not in it.
func devicesOf(held types.ResourceList, capacity Capacity) map[string]bool {
	devices := map[string]bool{}
	for name, quantity := range held {
		device := deviceOf(name)
		most, known := capacity(name)
		if device == "" || !known || most == math.MaxInt64 || quantity <= 0 {
			continue
		}
		devices[device] = devices[device] || quantity >= most
	}
	return devices
}

// deviceOf returns the path of the device that has the resource. It is empty for a resource of the
// node itself.
func deviceOf(name types.ResourceName) string {
	path, err := resource.ParsePath(name)
	if err != nil {
		return ""
	}
	return path.Device()
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

// CurrentName returns the one of the node's names that is the same resource of the same device. The
// groups above a device do not identify it: a device scheduler may know more levels of them than
// the node publishes, and a node may number them differently after a start. A name that matches no
// resource, or several, stays.
func CurrentName(names iter.Seq[types.ResourceName], name types.ResourceName) types.ResourceName {
	var found []types.ResourceName
	for candidate := range names {
		if SameResource(candidate, name) {
			found = append(found, candidate)
		}
	}
	if len(found) != 1 {
		return name
	}
	return found[0]
}
