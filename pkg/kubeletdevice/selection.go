// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeletdevice

import (
	"fmt"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// ByID begins a placeholder that stands for the one NUMA node, or the one device, whose ID follows.
const ByID = "="

// MaxCount is how many devices one request may be for, and all requests of a pod. It bounds the
// memory that reading them takes.
const MaxCount = 4096

// Selection is a request in a pod's annotation for devices of a kubelet device plugin.
type Selection struct {
	// Resource is the extended resource of the devices.
	Resource types.ResourceName
	// NUMA is the placeholder for their NUMA nodes.
	NUMA string
	// ID is the ID of the one device that the request names, as it stands in the device's name. It
	// is empty for a request for any device.
	ID string
	// Several says that the request has no placeholder for the device, and is for Count of them.
	Several bool
	// Count is how many devices are requested. It is 0 for a request that excludes the device with
	// the ID, 1 for one with a placeholder for the device, and MaxCount at most.
	Count int64
}

// Excludes reports whether the request is for not getting the device with the ID.
func (s Selection) Excludes() bool { return s.Count == 0 }

// Device returns the name of the device with the ID if it belongs to these NUMA nodes, which are an
// instance of Level.
func (s Selection) Device(numa string) types.ResourceName {
	name, _ := Request(s.Resource, numa, s.ID) // the resource was parsed
	return name
}

// ParseSelection parses a request, whose prefix users may leave out. ok is false for a request for
// devices of another kind. The error says why no node can serve the request.
func ParseSelection(request types.ResourceName, quantity int64) (s Selection, ok bool, err error) {
	full := resource.WithPrefix(request)
	s.Count = quantity
	var device string
	if s.Resource, s.NUMA, device, ok = ParseRequest(full); !ok {
		s.Resource, s.NUMA, _, ok = ParseRequest(full + "/0/" + Quantity)
		s.Several = true
	}
	if !ok {
		return Selection{}, false, nil
	}
	id, byID := strings.CutPrefix(device, ByID)
	if byID {
		s.ID = id
	}
	switch {
	case s.NUMA == ByID || byID && id == "":
		err = fmt.Errorf("%s has no name behind %q: add the ID of a device or the number of a NUMA node", request, ByID)
	case s.Several && (quantity < 1 || quantity > MaxCount):
		err = fmt.Errorf("%s is %d: request 1 to %d", request, quantity, MaxCount)
	case !s.Several && quantity != 1 && !(byID && quantity == 0):
		err = fmt.Errorf("%s is %d: request 1 of it, or several without naming each", request, quantity)
	}
	return s, true, err
}
