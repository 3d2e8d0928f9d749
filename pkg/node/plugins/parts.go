// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"slices"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Part is what one source has in an inventory.
type Part struct {
	// Label is the source's.
	Label string
	// Names are all names of the inventory's Node that are the source's, sorted: of devices and of
	// extended resources.
	Names []types.ResourceName
}

// Parts returns what each source has in the inventory, in the order of the sources. Each name
// belongs to one.
func (i *Inventory) Parts() []Part {
	names := map[*member][]types.ResourceName{}
	for name, owner := range i.owners {
		names[owner] = append(names[owner], name)
	}
	var parts []Part
	for _, m := range i.members {
		if len(names[m]) > 0 {
			slices.Sort(names[m])
			parts = append(parts, Part{m.source.Label(), names[m]})
		}
	}
	return parts
}
