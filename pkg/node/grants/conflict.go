// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Has says how much of a resource the node has to give, and whether the node has it at all.
type Has func(types.ResourceName) (quantity int64, known bool)

// Conflict is the error of a grant that would give a device beyond what it has. It names the holders.
type Conflict struct {
	// Resource is the node's resource that is short, with how much the pod wants and how much there is.
	Resource    types.ResourceName
	Wanted, Has int64
	// Held is how much others hold, and Holders are those, sorted.
	Held    int64
	Holders []string

	uids []string // of the holders
}

// Error names resource, quantities, holders and the next step.
func (c *Conflict) Error() string {
	if len(c.Holders) == 0 {
		return fmt.Sprintf("%s: the pod was given %d, the node has %d; delete the pod to have it scheduled again", c.Resource, c.Wanted, c.Has)
	}
	return fmt.Sprintf("%s: the pod was given %d, but of %d that the node has %d are held by %v; it is tried again, and works when they are gone",
		c.Resource, c.Wanted, c.Has, c.Held, c.Holders)
}

// conflict returns the first resource, by name, that g cannot have beside the others, which are other pods', or nil.
func conflict(g *Grant, others map[string]*Grant, has Has) *Conflict {
	wanted := g.Holds()
	held := make(map[*Grant]types.ResourceList, len(others))
	inUse := types.ResourceList{}
	for _, other := range others {
		held[other] = follow(other.Holds(), wanted, has)
		grouptree.Take(inUse, held[other])
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		quantity, _ := has(name)
		c := &Conflict{Resource: name, Wanted: wanted[name], Has: quantity, Held: inUse[name]}
		// Written so that no sum can overflow.
		if c.Wanted <= c.Has && c.Held <= c.Has-c.Wanted {
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

// follow returns what is held under the names that it has now. A device keeps its ID, but the groups above it are numbered
// anew when the node finds its devices anew: a name that the node has no more is taken for each wanted one of the same device.
func follow(held, wanted types.ResourceList, has Has) types.ResourceList {
	now := types.ResourceList{}
	for name, quantity := range held {
		if _, known := has(name); known {
			grouptree.Take(now, types.ResourceList{name: quantity})
			continue
		}
		for other := range wanted {
			if SameDevice(other, name) {
				grouptree.Take(now, types.ResourceList{other: quantity})
			}
		}
	}
	return now
}

// SameDevice reports whether both are names of one resource of one device, wherever it is.
func SameDevice(a, b types.ResourceName) bool { return ofDevice(a) == ofDevice(b) }

// ofDevice returns what stays of a device resource's name wherever the device is: its lowest level, its ID, and the resource.
func ofDevice(name types.ResourceName) string {
	segments := strings.Split(string(name), "/")
	return strings.Join(segments[max(0, len(segments)-3):], "/")
}
