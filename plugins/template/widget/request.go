// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package widget

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Request adds a container's requests for widgets to its DevRequests, in the form that the node's inventory has. From
// then on they are the group scheduler's: it finds the widgets.
//
// A container says how many it wants (example.com/widget in its limits), or writes in its annotation what it wants:
//
//	board/A/widget/0/cards: 1, board/A/widget/1/cards: 1    two widgets of one board; A, 0 and 1 are placeholders
func Request(node *types.NodeInfo, container *types.ContainerInfo) {
	requests := types.ResourceList{}
	for _, name := range slices.Sorted(maps.Keys(container.Requests)) { // of two spellings of one name the full one counts
		if quantity := container.Requests[name]; quantity > 0 && isWidget(name) { // who asks for 0 would see somebody else's
			requests[full(name)] = quantity
		}
	}
	for i := int64(len(requests)); i < container.KubeRequests[Count]; i++ {
		types.AddGroupResource(requests, fmt.Sprintf("%s/counted-%d/%s", widgets, i, cards), 1)
	}
	_, requests = resource.TranslateResource(node.Allocatable, requests, boards, widgets)

	// Other plugins write here too: add, never replace.
	types.FillContainerInfo(container)
	maps.Copy(container.DevRequests, requests)
}

// isWidget tells whether a name asks for a widget, with or without its board.
func isWidget(name types.ResourceName) bool {
	path := strings.Split(strings.TrimPrefix(string(name), types.DeviceGroupPrefix+"/"), "/")
	return len(path) == 3 && path[0] == widgets || len(path) == 5 && path[0] == boards && path[2] == widgets
}

// full returns the name with its prefix, which people may leave out.
func full(name types.ResourceName) types.ResourceName {
	if resource.IsGroupResourceName(name) {
		return name
	}
	return types.DeviceGroupPrefix + "/" + name
}
