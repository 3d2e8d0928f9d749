// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// treeField is the field of the compact form.
const treeField = "tree"

// maxTreeNameBytes is the maximum total length of the full names of a tree, so that a small text
// cannot make a reader use much memory. It is more than ten times the length for a tree of devices.
const maxTreeNameBytes = 16 * MaxBytes

// unfolding reads the tree of the compact form.
type unfolding struct {
	lists   [inScorer]types.ResourceList
	scorers types.ResourceScorer
	seen    map[types.ResourceName]bool
	bytes   int // of all names
}

func newUnfolding() *unfolding {
	u := &unfolding{scorers: types.ResourceScorer{}, seen: map[types.ResourceName]bool{}}
	for place := range u.lists {
		u.lists[place] = types.ResourceList{}
	}
	return u
}

// set notes a quantity in one of the places.
func (u *unfolding) set(place int, name types.ResourceName, quantity int64) {
	if place == inScorer {
		u.scorers[name] = int32(quantity)
	} else {
		u.lists[place][name] = quantity
	}
}

// addTo adds the tree's resources to a node, which must not have any of them.
func (u *unfolding) addTo(node *types.NodeInfo) error {
	lists := []*types.ResourceList{inCapacity: &node.Capacity, inAllocatable: &node.Allocatable, inUsed: &node.Used}
	for place, list := range lists {
		for name := range u.lists[place] {
			if _, twice := (*list)[name]; twice {
				return twiceInTree(name)
			}
		}
		if len(*list) == 0 && len(u.lists[place]) > 0 {
			*list = types.ResourceList{}
		}
		maps.Copy(*list, u.lists[place])
	}
	for name := range u.scorers {
		if _, twice := node.Scorer[name]; twice {
			return twiceInTree(name)
		}
	}
	if len(node.Scorer) == 0 && len(u.scorers) > 0 {
		node.Scorer = types.ResourceScorer{}
	}
	maps.Copy(node.Scorer, u.scorers)
	return nil
}

func twiceInTree(name types.ResourceName) error {
	field := entryPath(treeField, string(name))
	return &Error{Field: field, Problem: "the resource occurs twice", Fix: "keep one of them"}
}

// tree reads the tree of the compact form.
func (r *reader) tree(u *unfolding) error {
	return r.object(treeField, func(key string) error { return r.branch(u, "", key) })
}

// branch reads the value of a key below the name prefix: a resource, or another branch.
func (r *reader) branch(u *unfolding, prefix, key string) error {
	name := key
	switch {
	case prefix != "" && key == "":
		name = prefix
	case prefix != "":
		name = prefix + "/" + key
	}
	field := entryPath(treeField, name)
	// Names only grow, so this bounds the depth of branches, too.
	if err := checkResource(field, name); err != nil {
		return err
	}
	token, err := r.token(field)
	if err != nil {
		return err
	}
	if token == json.Delim('{') && key != "" {
		return r.fields(field, func(key string) error { return r.branch(u, name, key) })
	}
	resource := types.ResourceName(name)
	if u.seen[resource] {
		return twiceInTree(resource)
	}
	u.seen[resource] = true
	if u.bytes += len(name); u.bytes > maxTreeNameBytes {
		return &Error{
			Field:   treeField,
			Problem: fmt.Sprintf("the names in it have more than %d bytes", maxTreeNameBytes),
			Fix:     "use fewer resources or shorter names",
		}
	}
	if token == json.Delim('[') {
		return r.entry(u, field, resource)
	}
	quantity, err := wholeNumber(field, token, math.MaxInt64)
	if err != nil {
		return err
	}
	u.set(inCapacity, resource, quantity)
	u.set(inAllocatable, resource, quantity)
	return nil
}

// entry reads the list of a resource's quantities after its beginning.
func (r *reader) entry(u *unfolding, field string, name types.ResourceName) error {
	for place := 0; r.dec.More(); place++ {
		if place == places {
			return &Error{
				Field:   field,
				Problem: "the list is too long",
				Fix:     "write capacity, allocatable, used and scorer",
			}
		}
		token, err := r.token(field)
		if err != nil {
			return err
		}
		if token == nil {
			continue
		}
		limit := int64(math.MaxInt64)
		if place == inScorer {
			limit = math.MaxInt32
		}
		quantity, err := wholeNumber(field, token, limit)
		if err != nil {
			return err
		}
		u.set(place, name, quantity)
	}
	_, err := r.token(field)
	return err
}
