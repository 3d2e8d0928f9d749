// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"maps"
	"sync/atomic"

	"github.com/kubedevice/kubedevice/pkg/request"
)

// maxParts is how many different parts of a request are kept, of which a cluster has as many as it
// has nodes with different device resources.
const maxParts = 64

// parts are what plugins translate of one request: all of it, or what is for devices of a node. It
// is safe for concurrent use.
type parts struct {
	all     *translation
	choices []choice
	byNames atomic.Pointer[map[*deviceNames]*translation]
}

// partOf returns the part of a request that is for devices of the node with this inventory, as no
// plugin has translated it yet. It is kept with the request.
func (s *Set) partOf(request *request.Request, inventory *Inventory) *translation {
	return s.partsOf(request, inventory).on(inventory.devices)
}

// dropped says which choice of a request the node with this inventory would drop, or "".
func (s *Set) dropped(request *request.Request, inventory *Inventory) string {
	return droppedBy(inventory, s.partsOf(request, inventory).choices)
}

func (s *Set) partsOf(request *request.Request, inventory *Inventory) *parts {
	if inventory.anyDevices {
		request = request.AfterWait()
	}
	return request.Memo(s.newParts).(*parts)
}

func (s *Set) newParts(request *request.Request) any {
	content := request.Content()
	return &parts{all: newTranslation(content), choices: s.choicesOf(content)}
}

// on returns the part for the nodes on which these are devices.
func (p *parts) on(devices *deviceNames) *translation {
	kept := p.byNames.Load()
	if kept != nil {
		if part, ok := (*kept)[devices]; ok {
			return part
		}
	}
	part := p.all
	if content := p.all.Part(devices.has); content != p.all.Content {
		part = newTranslation(content)
	}
	more := map[*deviceNames]*translation{devices: part}
	if kept != nil && len(*kept) < maxParts {
		maps.Copy(more, *kept)
	}
	p.byNames.CompareAndSwap(kept, &more)
	return part
}
