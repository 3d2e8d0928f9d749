// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Resource is one device resource of a node. Quantities are in base units.
type Resource struct {
	// Name is its full path.
	Name types.ResourceName
	// Allocatable is what pods may have of it, and Used what they and others have.
	Allocatable, Used int64
}

// Resources returns the resources that the group scheduler has for the node, in the order of their names.
func (n *Node) Resources() []Resource {
	groups := n.inventory.groups
	resources := make([]Resource, groups.Len())
	for i := range resources {
		resources[i] = Resource{Name: groups.Name(i), Allocatable: groups.Allocatable(i), Used: n.used[i]}
	}
	return resources
}

// Holds returns how much the pod holds of a resource that the group scheduler has.
func (h *Holder) Holds(name types.ResourceName) int64 { return h.held[name] }
