// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// builder collects the tree of a node while its instances still have names.
type builder struct {
	root       *branch
	signatures map[string]int32
	types      map[string]int32
}

// branch is an instance of the builder's tree.
type branch struct {
	signature string
	lo, hi    int32
	own       map[string]int32              // type → resource
	levels    map[string]map[string]*branch // level → instance → branch
}

func newBranch(signature string, lo int32) *branch {
	return &branch{signature: signature, lo: lo, own: map[string]int32{}, levels: map[string]map[string]*branch{}}
}

func newBuilder() *builder {
	return &builder{root: newBranch("", 0), signatures: map[string]int32{"": 0}, types: map[string]int32{}}
}

// add puts a resource into the tree. Resources come in the order of their numbers.
func (b *builder) add(number int32, path resource.Path) {
	br := b.root
	br.hi = number + 1
	for level, name := range path.Levels() {
		instances := br.levels[level]
		if instances == nil {
			instances = map[string]*branch{}
			br.levels[level] = instances
		}
		next := instances[name]
		if next == nil {
			signature := join(br.signature, level)
			b.signatures[signature] = 0
			next = newBranch(signature, number)
			instances[name] = next
		}
		br = next
		br.hi = number + 1
	}
	typ := join(br.signature, path.Resource())
	b.types[typ] = 0
	br.own[typ] = number
}

// join adds a level or a resource to the signature of an instance: a signature names the levels
// that lead to an instance, without the instances on the way.
func join(signature, segment string) string {
	if signature == "" {
		return segment
	}
	return signature + "/" + segment
}

// enumerate gives the keys of m consecutive numbers in their order.
func enumerate(m map[string]int32) {
	for i, key := range slices.Sorted(maps.Keys(m)) {
		m[key] = int32(i)
	}
}

// build writes the tree into l, breadth first, so that the children of one level are consecutive.
func (b *builder) build(l *layout) {
	enumerate(b.signatures)
	enumerate(b.types)
	l.signatures, l.types = b.signatures, b.types
	for typ, number := range l.types {
		if isLimit(typ) {
			l.limits = append(l.limits, number)
		}
	}
	l.typ = make([]int32, len(l.allocatable))
	l.owner = make([]int32, len(l.allocatable))
	queue := []*branch{b.root}
	l.instances = append(l.instances, instance{parent: -1})
	for x := 0; x < len(queue); x++ {
		br := queue[x]
		node := instance{
			signature: l.signatures[br.signature], parent: l.instances[x].parent, lo: br.lo, hi: br.hi,
			ownLo: int32(len(l.own)), edgeLo: int32(len(l.edges)),
		}
		for typ, resource := range br.own {
			l.own = append(l.own, ownResource{typ: l.types[typ], resource: resource})
			l.typ[resource], l.owner[resource] = l.types[typ], int32(x)
		}
		node.ownHi = int32(len(l.own))
		slices.SortFunc(l.own[node.ownLo:], func(a, b ownResource) int { return cmp.Compare(a.resource, b.resource) })
		for _, level := range slices.Sorted(maps.Keys(br.levels)) {
			first := int32(len(queue))
			signature := int32(0)
			for _, name := range slices.Sorted(maps.Keys(br.levels[level])) {
				next := br.levels[level][name]
				signature = l.signatures[next.signature]
				queue = append(queue, next)
				l.instances = append(l.instances, instance{parent: int32(x)})
			}
			l.edges = append(l.edges, edge{signature: signature, first: first, last: int32(len(queue))})
		}
		node.edgeHi = int32(len(l.edges))
		l.instances[x] = node
	}
}

// CompileDeviceTree builds the tree of a node from its allocatable resources and their scorers. It
// ignores names outside resource/group. It returns an error that names the resource when a name is
// not a path of levels and instances, a quantity is negative, or a scorer number is unknown.
func CompileDeviceTree(allocatable types.ResourceList, scorer types.ResourceScorer) (*DeviceTree, error) {
	tree := &DeviceTree{}
	for name := range allocatable {
		if resource.IsGroupResourceName(name) {
			tree.names = append(tree.names, name)
		}
	}
	if len(tree.names) > MaxResources {
		return nil, fmt.Errorf("the node has %d device resources, more than %d: advertise fewer",
			len(tree.names), MaxResources)
	}
	slices.Sort(tree.names)
	tree.index = make(map[types.ResourceName]int32, len(tree.names))
	b := newBuilder()
	for i, name := range tree.names {
		path, err := resource.ParsePath(name)
		if err != nil {
			return nil, fmt.Errorf("device resource %q: %w", name, err)
		}
		quantity := allocatable[name]
		if quantity < 0 {
			return nil, fmt.Errorf("device resource %q: allocatable is negative (%d)", name, quantity)
		}
		m, err := modeOf(scorer[name], name)
		if err != nil {
			return nil, fmt.Errorf("device resource %q: %w", name, err)
		}
		tree.index[name] = int32(i)
		tree.allocatable = append(tree.allocatable, quantity)
		tree.mode = append(tree.mode, m)
		b.add(int32(i), path)
	}
	b.build(&tree.layout)
	tree.shape = tree.classify()
	return tree, nil
}

// classify sets the class of each instance. Instances of one class have the same levels and the
// same resources with the same allocatable quantities and modes, in the same positions. It returns
// the digest of the whole tree.
func (l *layout) classify() Digest {
	content := encoder{}
	for _, names := range []map[string]int32{l.signatures, l.types} {
		keys := slices.Sorted(maps.Keys(names))
		content.num(int64(len(keys)))
		content.str(keys...)
	}
	classes := map[string]int32{}
	for x := len(l.instances) - 1; x >= 0; x-- { // children have larger numbers than their parents
		inst := &l.instances[x]
		var key encoder
		key.num(int64(inst.signature), int64(inst.hi-inst.lo), int64(inst.ownHi-inst.ownLo))
		for _, own := range l.own[inst.ownLo:inst.ownHi] {
			key.num(int64(own.typ), int64(own.resource-inst.lo),
				l.allocatable[own.resource], int64(l.mode[own.resource]))
		}
		for _, edge := range l.edges[inst.edgeLo:inst.edgeHi] {
			key.num(int64(edge.signature), int64(edge.last-edge.first))
			for child := edge.first; child < edge.last; child++ {
				key.num(int64(l.instances[child].class), int64(l.instances[child].lo-inst.lo))
			}
		}
		class, known := classes[string(key)]
		if !known {
			class = int32(len(classes))
			classes[string(key)] = class
			content.str(string(key))
		}
		inst.class = class
	}
	content.num(int64(l.instances[0].class))
	return sha256.Sum256(content)
}
