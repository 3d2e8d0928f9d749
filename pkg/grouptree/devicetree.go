// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import "github.com/kubedevice/kubedevice/pkg/sdk/types"

// MaxResources is the largest number of device resources that one node may have.
const MaxResources = 1 << 20

// DeviceTree is the compiled tree of one node's allocatable devices. It is immutable and safe for
// concurrent use.
//
// The resources are numbered from 0 in the order of their names. Below one instance they are
// consecutive, because the instance's path is a prefix of their names.
type DeviceTree struct {
	names []types.ResourceName
	index map[types.ResourceName]int32
	layout
}

// layout is the part of a device tree that placement works on: it knows the order of the instances
// but not their names, so nodes that differ only in the names of their devices have equal layouts.
type layout struct {
	allocatable []int64
	mode        []mode  // by resource
	typ         []int32 // by resource: its type
	owner       []int32 // by resource: its instance

	instances []instance // 0 is the node itself; the children of one level are consecutive, in name order
	edges     []edge
	own       []ownResource

	signatures map[string]int32 // kinds of instances, by the levels that lead there
	types      map[string]int32 // kinds of resources, by the levels that lead there and the resource
	limits     []int32          // those types that isLimit is true of
	shape      Digest
}

// instance is one group or device of a node.
type instance struct {
	signature, parent int32
	lo, hi            int32 // the resources below it, at any depth
	edgeLo, edgeHi    int32 // its levels
	ownLo, ownHi      int32 // its own resources
	class             int32 // instances of equal class have the same structure
}

// edge is one level below an instance.
type edge struct{ signature, first, last int32 }

// ownResource is a resource of an instance itself, not of one below it.
type ownResource struct{ typ, resource int32 }

// Len returns the number of device resources: the length of a vector of used quantities.
func (tree *DeviceTree) Len() int { return len(tree.names) }

// Name returns the name of resource i.
func (tree *DeviceTree) Name(i int) types.ResourceName { return tree.names[i] }

// Index returns the number of the resource of that name, and whether the tree has it.
func (tree *DeviceTree) Index(name types.ResourceName) (int, bool) {
	i, ok := tree.index[name]
	return int(i), ok
}

// Allocatable returns the allocatable quantity of resource i.
func (tree *DeviceTree) Allocatable(i int) int64 { return tree.allocatable[i] }

// Shape identifies the structure of the tree without the names of its instances: on trees of equal
// shape, the same request and the same vector of used quantities give the same placement.
func (tree *DeviceTree) Shape() Digest { return tree.shape }

// child returns the instances of a level below x, as a range. The range is empty when x has no such
// level.
func (l *layout) child(x, signature int32) (first, last int32) {
	inst := &l.instances[x]
	for i := inst.edgeLo; i < inst.edgeHi; i++ {
		if l.edges[i].signature == signature {
			return l.edges[i].first, l.edges[i].last
		}
	}
	return 0, 0
}

// resource returns x's own resource of a type, or -1.
func (l *layout) resource(x, typ int32) int32 {
	inst := &l.instances[x]
	for i := inst.ownLo; i < inst.ownHi; i++ {
		if l.own[i].typ == typ {
			return l.own[i].resource
		}
	}
	return -1
}
