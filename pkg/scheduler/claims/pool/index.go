// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/structured"
)

// Inventory keeps the index of the slices that were listed last. It is safe for concurrent use.
type Inventory struct {
	features structured.Features

	mu      sync.Mutex
	current *Index
}

// NewInventory returns an empty inventory. Upstream's allocator has these features.
func NewInventory(features structured.Features) *Inventory {
	return &Inventory{features: features, current: newIndex(features, nil)}
}

// Update returns the index of all slices of the cluster, which must not change from now on. What
// was computed of nodes of which nothing has changed is kept: listing the same slices again costs
// one look-up for each.
func (i *Inventory) Update(all []*resourceapi.ResourceSlice) *Index {
	i.mu.Lock()
	defer i.mu.Unlock()
	changed, same := i.current.changes(all)
	if same {
		return i.current
	}
	next := newIndex(i.features, all)
	next.inherit(i.current, changed)
	i.current = next
	return next
}

// Index finds the devices that a node can reach. It is safe for concurrent use.
type Index struct {
	features structured.Features
	known    map[*resourceapi.ResourceSlice]struct{}
	byPool   map[ID][]*resourceapi.ResourceSlice
	byNode   map[string][]*resourceapi.ResourceSlice // those that name a node
	shared   []*resourceapi.ResourceSlice            // all others
	nodes    sync.Map                                // *reachable by node name
}

// reachable is what was computed of a node.
type reachable struct {
	of   *v1.Node // nil if it depends on the node's name alone
	node *Node
	err  error
}

func newIndex(features structured.Features, all []*resourceapi.ResourceSlice) *Index {
	index := &Index{
		features: features,
		known:    make(map[*resourceapi.ResourceSlice]struct{}, len(all)),
		byPool:   map[ID][]*resourceapi.ResourceSlice{},
		byNode:   map[string][]*resourceapi.ResourceSlice{},
	}
	for _, slice := range all {
		index.known[slice] = struct{}{}
		if index.ignored(slice) {
			continue
		}
		index.byPool[idOf(slice)] = append(index.byPool[idOf(slice)], slice)
		if at := placeOfSlice(slice); at.nodeName != "" {
			index.byNode[at.nodeName] = append(index.byNode[at.nodeName], slice)
		} else {
			index.shared = append(index.shared, slice)
		}
	}
	return index
}

// ignored reports whether upstream's allocator ignores a slice because a feature of its is off.
func (i *Index) ignored(slice *resourceapi.ResourceSlice) bool {
	if !i.features.PartitionableDevices &&
		(slice.Spec.PerDeviceNodeSelection != nil || len(slice.Spec.SharedCounters) > 0) {
		return true
	}
	if i.features.CompatibilityGroups {
		return false
	}
	for d := range slice.Spec.Devices {
		for _, consumed := range slice.Spec.Devices[d].ConsumesCounters {
			if len(consumed.CompatibilityGroups) > 0 {
				return true
			}
		}
	}
	return false
}

// changes returns the slices that were added or removed, or that there are none.
func (i *Index) changes(all []*resourceapi.ResourceSlice) (changed []*resourceapi.ResourceSlice, same bool) {
	kept := 0
	for _, slice := range all {
		if _, known := i.known[slice]; known {
			kept++
		} else {
			changed = append(changed, slice)
		}
	}
	if kept == len(i.known) {
		return changed, len(changed) == 0
	}
	there := make(map[*resourceapi.ResourceSlice]struct{}, len(all))
	for _, slice := range all {
		there[slice] = struct{}{}
	}
	for slice := range i.known {
		if _, kept := there[slice]; !kept {
			changed = append(changed, slice)
		}
	}
	return changed, false
}

// inherit takes over what was computed of the nodes that reach no pool of which a slice has
// changed.
func (i *Index) inherit(from *Index, changed []*resourceapi.ResourceSlice) {
	affected := map[string]bool{}
	for _, slice := range changed {
		for _, pool := range [][]*resourceapi.ResourceSlice{
			{slice}, from.byPool[idOf(slice)], i.byPool[idOf(slice)],
		} {
			for _, other := range pool {
				at := placeOfSlice(other)
				if at.nodeName == "" {
					return // it may be any node
				}
				affected[at.nodeName] = true
			}
		}
	}
	from.nodes.Range(func(name, known any) bool {
		if !affected[name.(string)] {
			i.nodes.Store(name, known)
		}
		return true
	})
}

// Node returns what a node can reach. An error is that of a slice that cannot be read.
func (i *Index) Node(node *v1.Node) (*Node, error) {
	if known, ok := i.nodes.Load(node.Name); ok {
		if known := known.(*reachable); known.of == nil || known.of == node {
			return known.node, known.err
		}
	}
	found := &reachable{}
	if len(i.shared) > 0 {
		found.of = node
	}
	found.node, found.err = i.reach(node)
	i.nodes.Store(node.Name, found)
	return found.node, found.err
}

// reach computes what a node can reach.
func (i *Index) reach(node *v1.Node) (*Node, error) {
	pools := map[ID][]*resourceapi.ResourceSlice{}
	for _, list := range [][]*resourceapi.ResourceSlice{i.byNode[node.Name], i.shared} {
		for _, slice := range list {
			found, err := reaches(node, slice)
			if err != nil {
				return nil, fmt.Errorf("ResourceSlice %q: %w", slice.Name, err)
			}
			if !found {
				continue
			}
			id := idOf(slice)
			before := pools[id]
			switch {
			case len(before) == 0 || before[0].Spec.Pool.Generation < slice.Spec.Pool.Generation:
				pools[id] = []*resourceapi.ResourceSlice{slice}
			case before[0].Spec.Pool.Generation == slice.Spec.Pool.Generation:
				pools[id] = append(before, slice)
			}
		}
	}
	reached := &Node{}
	for id, slices := range pools {
		pool, err := newPool(id, slices, i.byPool[id], node)
		if err != nil {
			return nil, fmt.Errorf("pool %s: %w", id, err)
		}
		if pool != nil {
			reached.Pools = append(reached.Pools, pool)
		}
	}
	slices.SortFunc(reached.Pools, func(a, b *Pool) int {
		return cmp.Or(cmp.Compare(a.ID.Driver, b.ID.Driver), cmp.Compare(a.ID.Pool, b.ID.Pool))
	})
	for _, pool := range reached.Pools {
		for _, device := range pool.Devices {
			device.Index = len(reached.Devices)
			reached.Devices = append(reached.Devices, device)
		}
	}
	return reached, nil
}

// memoEntries bounds what is kept of one node: classes and selectors are few.
const memoEntries = 64

// Memo keeps values that others compute from a node's devices, by keys of theirs, for as long as
// the devices stay as they are. It forgets all when there are too many. It is safe for concurrent
// use.
type Memo struct {
	mu     sync.RWMutex
	values map[any]any
}

// Get returns the value of a key, nil if there is none.
func (m *Memo) Get(key any) any {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.values[key]
}

// Put keeps the value of a key.
func (m *Memo) Put(key, value any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.values == nil || len(m.values) >= memoEntries {
		m.values = map[any]any{}
	}
	m.values[key] = value
}
