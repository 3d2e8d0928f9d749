// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"maps"
	"sync/atomic"

	"github.com/kubedevice/kubedevice/pkg/request"
)

// maxParts is how many different parts of a request are kept. There is one for each set of its
// extended resources that are the devices of some node: two, if it counts one.
const maxParts = 64

// parts are what plugins translate of one request: all of it, or what is for devices of a node. It
// is safe for concurrent use.
type parts struct {
	all     *translation
	choices []choice
	// bySet are the parts that were needed, by which of all.counts are devices: a byte for each.
	bySet atomic.Pointer[map[string]*translation]
}

// partOf returns the part of a request that is for devices of the node with this inventory, as no
// plugin has translated it yet. It is kept with the request.
func (s *Set) partOf(request *request.Request, inventory *Inventory) *translation {
	return s.partsOf(request, inventory).partFor(inventory.devices)
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
	return &parts{all: newTranslation(content), choices: append(s.choicesOf(content), choicesByName(request)...)}
}

// partFor returns the part for the nodes on which these are devices.
func (p *parts) partFor(devices deviceNames) *translation {
	var space [64]byte // so that few resources take no memory
	set, all := space[:0], true
	for _, name := range p.all.counts() {
		if devices.has(name) {
			set = append(set, 1)
		} else {
			set, all = append(set, 0), false
		}
	}
	if all {
		return p.all
	}
	kept := p.bySet.Load()
	if kept != nil {
		if part, ok := (*kept)[string(set)]; ok {
			return part
		}
	}
	part := p.all
	if content := p.all.Part(devices.has); content != p.all.Content {
		part = newTranslation(content)
	}
	more := map[string]*translation{string(set): part}
	if kept != nil && len(*kept) < maxParts {
		maps.Copy(more, *kept)
	}
	p.bySet.CompareAndSwap(kept, &more)
	return part
}
