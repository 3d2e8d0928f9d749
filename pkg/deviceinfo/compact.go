// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"maps"
	"slices"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// plainBytes is the largest value in the published form, in which each list names each resource in
// full: about 330 GPUs of cards and memory. The other 50 % of the size that Kubernetes allows
// remains for the node's other annotations.
const plainBytes = MaxBytes / 2

// compact is a node in the compact form: one tree has the content of the four lists of the
// published form.
type compact struct {
	Name string `json:"name,omitempty"`
	Tree any    `json:"tree"`
}

// The places of a resource's quantities in the tree.
const (
	inCapacity = iota
	inAllocatable
	inUsed
	inScorer
	places
)

// encodeCompact writes a node in the compact form.
func encodeCompact(node *types.NodeInfo) (string, error) {
	entries := map[types.ResourceName]*[places]any{}
	enter := func(place int, name types.ResourceName, quantity any) {
		if entries[name] == nil {
			entries[name] = &[places]any{}
		}
		entries[name][place] = quantity
	}
	lists := []types.ResourceList{inCapacity: node.Capacity, inAllocatable: node.Allocatable, inUsed: node.Used}
	for place, list := range lists {
		for name, quantity := range list {
			enter(place, name, quantity)
		}
	}
	for name, scorer := range node.Scorer {
		enter(inScorer, name, scorer)
	}
	root := &branch{}
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		if err := checkResource(entryPath("tree", string(name)), string(name)); err != nil {
			return "", err
		}
		root.insert(string(name), shortest(entries[name]))
	}
	return encode(compact{Name: node.Name, Tree: root.folded()})
}

// shortest returns the value of a resource: one number if all of the capacity is allocatable,
// otherwise a list.
func shortest(entry *[places]any) any {
	last := places - 1
	for entry[last] == nil {
		last--
	}
	if last == inAllocatable && entry[inCapacity] == entry[inAllocatable] {
		return entry[inCapacity]
	}
	return entry[:last+1]
}

// branch is a part of a tree of names, one segment a level.
type branch struct {
	value    any // nil if no resource has exactly this name
	children map[string]*branch
}

func (b *branch) insert(name string, value any) {
	for segment := range strings.SplitSeq(name, "/") {
		if b.children == nil {
			b.children = map[string]*branch{}
		}
		if b.children[segment] == nil {
			b.children[segment] = &branch{}
		}
		b = b.children[segment]
	}
	b.value = value
}

// folded returns the branch as its JSON: a value, or an object in which segments without a fork
// between them share a key.
func (b *branch) folded() any {
	if len(b.children) == 0 && b.value != nil {
		return b.value
	}
	object := map[string]any{}
	if b.value != nil {
		object[""] = b.value
	}
	for key, next := range b.children {
		for next.value == nil && len(next.children) == 1 {
			for segment, only := range next.children {
				key, next = key+"/"+segment, only
			}
		}
		object[key] = next.folded()
	}
	return object
}
