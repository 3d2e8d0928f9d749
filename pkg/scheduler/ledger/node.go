// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// node is what is known of a node.
type node struct {
	// sources are the versions of the node that list its devices: one, and two while the inventory
	// is replaced.
	sources []*v1.Node
	// listed are the devices of the sources by what identifies them; nil before it is needed.
	listed map[identity][]string
	// former are the versions before these.
	former []*v1.Node
	// strays are devices that pods hold and the sources do not have, by their names, with what
	// identifies them. While unsettled is set, a scheduling cycle may go on that takes one.
	strays    map[string][]identity
	unsettled bool

	own, shared *place // with which the devices were joined; nil for none
	// twins are the published devices that are KubeDevice's, each with its names in the inventory;
	// a stray has none. They are nil before the devices are joined.
	twins map[structured.DeviceID][]string
	// claimed is what Claimed returned last.
	claimed map[string]bool
}

func (n *node) name() string { return n.sources[0].Name }

// matters reports whether a device of the node has two names, or had for its claim.
func (n *node) matters() bool { return len(n.twins)+len(n.claimed) > 0 }

// list adds a version of the node.
func (n *node) list(source *v1.Node) {
	for i, known := range n.sources {
		if SameDevices(known, source) {
			n.sources[i] = source
			return
		}
	}
	n.sources = append(n.sources, source)
	n.listed, n.twins = nil, nil
}

// listOnly drops all versions but one, and returns whether that changes anything.
func (n *node) listOnly(source *v1.Node) bool {
	if len(n.sources) == 1 && SameDevices(n.sources[0], source) {
		n.sources[0] = source
		return false
	}
	n.former = slices.DeleteFunc(n.sources, func(known *v1.Node) bool { return SameDevices(known, source) })
	n.sources, n.listed, n.twins, n.unsettled = []*v1.Node{source}, nil, nil, true
	return true
}

// SameDevices reports whether two versions of a node list the same devices, as far as it concerns
// claims.
func SameDevices(a, b *v1.Node) bool {
	return a.Annotations[deviceinfo.Annotation] == b.Annotations[deviceinfo.Annotation] &&
		a.Annotations[deviceinfo.AttributesAnnotation] == b.Annotations[deviceinfo.AttributesAnnotation]
}

// join joins the devices of the node with those that are published in these places.
func (n *node) join(own, shared *place) {
	if n.twins != nil && n.own == own && n.shared == shared {
		return
	}
	if n.listed == nil {
		n.listed = map[identity][]string{}
		for _, source := range n.sources {
			addListed(n.listed, source)
		}
	}
	n.own, n.shared, n.twins = own, shared, map[structured.DeviceID][]string{}
	for found, devices := range n.listed {
		n.add(found, devices)
	}
	for _, identities := range n.strays {
		for _, found := range identities {
			n.add(found, nil)
		}
	}
}

// addListed adds the devices that a node lists. Of what cannot be read, there is nothing: no device
// of the node is allocated then, and what pods hold are strays.
func addListed(listed map[identity][]string, source *v1.Node) {
	info, err := deviceinfo.DecodeNode(source.Annotations[deviceinfo.Annotation])
	if err != nil {
		return
	}
	published, _ := deviceinfo.DecodeAttributes(source.Annotations[deviceinfo.AttributesAnnotation])
	attributes := make(map[string]device.Attributes, len(published))
	for path, known := range published {
		attributes[deviceinfo.TaintedDevice(path)] = known
	}
	for _, list := range []sdk.ResourceList{info.Capacity, info.Allocatable} {
		for quantity := range list {
			path, err := resource.ParsePath(quantity)
			if err != nil || path.Depth() == 0 {
				continue
			}
			name := listedDevice(path)
			for _, found := range ofListed(path, attributes[name]) {
				if !slices.Contains(listed[found], name) {
					listed[found] = append(listed[found], name)
				}
			}
		}
	}
}

// add notes the published devices that have an identity of these devices of the inventory.
func (n *node) add(found identity, devices []string) {
	for _, at := range []*place{n.own, n.shared} {
		if at == nil {
			continue
		}
		for _, id := range at.byIdentity[found] {
			names := n.twins[id]
			for _, device := range devices {
				if !slices.Contains(names, device) {
					names = append(names, device)
				}
			}
			n.twins[id] = names
		}
	}
}

// findStrays finds those of the held resources whose devices the sources do not have. The devices
// are joined already.
func (n *node) findStrays(held []sdk.ResourceName) {
	var strays map[string][]identity
	var former map[identity][]string
	for _, resourceName := range held {
		path, err := resource.ParsePath(resourceName)
		if err != nil || path.Depth() == 0 {
			continue
		}
		identities, name := ofPath(path), listedDevice(path)
		if slices.ContainsFunc(identities, func(found identity) bool { return len(n.listed[found]) > 0 }) {
			continue
		}
		if strays == nil {
			strays, former = map[string][]identity{}, map[identity][]string{}
			for _, source := range n.former {
				addListed(former, source)
			}
		}
		identities = append(identities, n.strays[name]...)
		for found, devices := range former {
			if slices.Contains(devices, name) {
				identities = append(identities, found)
			}
		}
		slices.Sort(identities)
		strays[name] = slices.Compact(identities)
	}
	if !maps.EqualFunc(strays, n.strays, slices.Equal) {
		n.strays, n.twins = strays, nil
		n.join(n.own, n.shared)
	}
}

// claimedOf returns the devices of the inventory that claims have; nil for none.
func (n *node) claimedOf(claims allocations) map[string]bool {
	if len(n.twins) == 0 {
		return nil
	}
	allocated := claims.allocated()
	var claimed map[string]bool
	for id, devices := range n.twins {
		if allocated != nil && !allocated.Has(id) {
			continue
		}
		for _, device := range devices {
			if claimed == nil {
				claimed = map[string]bool{}
			}
			claimed[device] = true
		}
	}
	return claimed
}

// stillListed returns those of the devices that the sources have; nil for none.
func (n *node) stillListed(claimed map[string]bool) map[string]bool {
	var still map[string]bool
	for _, devices := range n.twins {
		for _, device := range devices {
			if claimed[device] {
				if still == nil {
					still = map[string]bool{}
				}
				still[device] = true
			}
		}
	}
	return still
}
