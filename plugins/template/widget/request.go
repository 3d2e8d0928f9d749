// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package widget

import (
	"fmt"
	"maps"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Request adds a container's requests for widgets to its DevRequests, in the form that the node's
// inventory has. The group scheduler then finds the widgets.
//
// A container requests a number of widgets (example.com/widget in its limits), or names them in its
// annotation:
//
//	board/A/widget/0/cards: 1, board/A/widget/1/cards: 1
//
// requests two widgets of one board; A, 0 and 1 are placeholders.
func Request(node *types.NodeInfo, container *types.ContainerInfo) {
	requests := types.ResourceList{}
	for _, name := range slices.Sorted(maps.Keys(container.Requests)) { // of two forms of one name the full one counts
		// A request for 0 holds nothing, and would show the container a widget that another one may
		// hold.
		if quantity := container.Requests[name]; quantity > 0 && isWidget(name) {
			requests[resource.WithPrefix(name)] = quantity
		}
	}
	for i := int64(len(requests)); i < container.KubeRequests[Count]; i++ {
		types.AddGroupResource(requests, fmt.Sprintf("%s/counted-%d/%s", Level, i, Cards), 1)
	}
	_, requests = resource.TranslateResource(node.Allocatable, requests, boards, Level)

	// Other plugins write here too: add, never replace.
	maps.Copy(container.DevRequests, requests)
}

// isWidget reports whether a name requests a widget, with or without its board. Users may leave out
// the prefix.
func isWidget(name types.ResourceName) bool {
	path, err := resource.ParseRequest(name)
	_, onBoard := path.Instance(boards)
	return err == nil && path.DeviceLevel() == Level && (path.Depth() == 1 || path.Depth() == 2 && onBoard)
}
