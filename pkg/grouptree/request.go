// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Kind says when a container of a pod runs.
type Kind int8

// The kinds of containers. Kubernetes starts init containers one after another, each when the one before it has ended;
// a restartable init container (sidecar) is started in its turn and goes on running along with the rest.
const (
	Regular Kind = iota
	Sidecar
	Init
)

// Container is one container of a pod's spec.
type Container struct {
	Name string
	Kind Kind
}

// Request is the compiled device requests of one pod. It is immutable and safe for concurrent use.
type Request struct {
	containers []container // running ones by name, then init containers by name
	running    int         // how many of them run
	groups     []group     // of one container after another, depth first; each container's own group first
	items      []item      // of one group after another, in the same order
	signatures []string    // kinds of instances that the groups ask for
	types      []string    // kinds of resources that the items ask for
	pinned     bool        // an allocation was filled in before: some items have only one place to go
	rescored   bool        // some container brings scorers of its own
	digest     Digest
}

// container is one container's part of a request.
type container struct {
	name             string
	kind             Kind
	turn             int // its place in the pod's spec
	groupLo, groupHi int32
	itemLo, itemHi   int32
}

// group is one placeholder, or a container as a whole.
type group struct {
	signature      int32 // into Request.signatures
	parent         int32 // -1 for a container
	end            int32 // the groups below it are those between it and end
	twin           int32 // the sibling before it when that asks for exactly the same, or -1
	itemLo, itemHi int32 // its own requests
	itemEnd        int32 // its own and those below it
	needs          []need
}

// need is how much of one kind of resource a group and the groups below it ask for.
type need struct {
	typ   int32
	total int64
}

// item is one requested resource.
type item struct {
	name     types.ResourceName
	typ      int32 // into Request.types
	quantity int64
	scorer   mode               // byDefault: the node's
	pin      types.ResourceName // the resource that serves it, when that was decided before
}

// CompileRequest builds the request of a pod from its containers' DevRequests, Scorer and AllocateFrom. Names outside
// resource/group belong to others and are left out.
//
// spec lists the pod's containers in the order of its spec, init containers first; it says which of the running
// containers are sidecars, whose devices an init container that runs after them cannot share. Without it (nil) the
// running containers are taken for regular ones.
//
// A request that AllocateFrom already serves is not searched: it is checked and scored.
//
// It returns an error that names container and request when a name is not a path of levels and placeholders, a quantity
// is negative, the quantities of the pod add up to more than an int64, a scorer number is unknown, or AllocateFrom
// serves something that is not requested.
func CompileRequest(pod *types.PodInfo, spec []Container) (*Request, error) {
	c := compiler{req: &Request{}, signatures: map[string]int32{}, types: map[string]int32{}}
	turns := make(map[string]int, len(spec))
	kinds := make(map[string]Kind, len(spec))
	for turn, container := range spec {
		turns[container.Name], kinds[container.Name] = turn, container.Kind
	}
	for _, name := range slices.Sorted(maps.Keys(pod.RunningContainers)) {
		kind := Regular
		if kinds[name] == Sidecar {
			kind = Sidecar
		}
		if err := c.container(name, kind, turns[name], pod.RunningContainers[name]); err != nil {
			return nil, err
		}
	}
	c.req.running = len(c.req.containers)
	for _, name := range slices.Sorted(maps.Keys(pod.InitContainers)) {
		if err := c.container(name, Init, turns[name], pod.InitContainers[name]); err != nil {
			return nil, err
		}
	}
	c.finish()
	return c.req, nil
}

// Empty reports whether the pod requests nothing of the group scheduler.
func (r *Request) Empty() bool { return len(r.items) == 0 }

// Digest identifies what is requested, names of containers and placeholders aside.
func (r *Request) Digest() Digest { return r.digest }

// compiler collects a request.
type compiler struct {
	req        *Request
	signatures map[string]int32
	types      map[string]int32
	total      int64
}

// asked is a placeholder that is being collected.
type asked struct {
	signature string
	items     []item
	levels    map[string]map[string]*asked
}

// container adds one container.
func (c *compiler) container(name string, kind Kind, turn int, info types.ContainerInfo) error {
	root := &asked{}
	for _, request := range slices.Sorted(maps.Keys(info.DevRequests)) {
		if !isDevice(request) {
			continue
		}
		if err := c.request(root, request, info); err != nil {
			return fmt.Errorf("container %q: device request %q: %w", name, request, err)
		}
	}
	for _, request := range slices.Sorted(maps.Keys(info.AllocateFrom)) {
		if _, ok := info.DevRequests[request]; !ok && isDevice(request) {
			return fmt.Errorf("container %q: %q is served by %q but not requested", name, request, info.AllocateFrom[request])
		}
	}
	at := container{name: name, kind: kind, turn: turn, groupLo: int32(len(c.req.groups)), itemLo: int32(len(c.req.items))}
	c.flatten(root, -1)
	at.groupHi, at.itemHi = int32(len(c.req.groups)), int32(len(c.req.items))
	c.req.containers = append(c.req.containers, at)
	return nil
}

// request adds one requested resource to the tree of its container.
func (c *compiler) request(root *asked, name types.ResourceName, info types.ContainerInfo) error {
	p, err := parsePath(name)
	if err != nil {
		return err
	}
	it := item{name: name, typ: intern(c.types, &c.req.types, p.resourceType()), quantity: info.DevRequests[name], pin: info.AllocateFrom[name]}
	if it.quantity < 0 {
		return fmt.Errorf("the quantity is negative (%d)", it.quantity)
	}
	if !isEnum(p.resource) {
		if it.quantity > math.MaxInt64-c.total {
			return fmt.Errorf("the pod's requests add up to more than %d", int64(math.MaxInt64))
		}
		c.total += it.quantity
	}
	if scorer, ok := info.Scorer[name]; ok {
		if it.scorer, err = modeOf(scorer, p.resource); err != nil {
			return err
		}
		c.req.rescored = true
	}
	c.req.pinned = c.req.pinned || it.pin != ""
	at := root
	for depth, level := range p.levels {
		if at.levels == nil {
			at.levels = map[string]map[string]*asked{}
		}
		if at.levels[level] == nil {
			at.levels[level] = map[string]*asked{}
		}
		next := at.levels[level][p.instances[depth]]
		if next == nil {
			next = &asked{signature: p.signature(depth + 1)}
			at.levels[level][p.instances[depth]] = next
		}
		at = next
	}
	at.items = append(at.items, it)
	return nil
}

// flatten writes a placeholder and all below it, depth first.
func (c *compiler) flatten(at *asked, parent int32) {
	r := c.req
	self := int32(len(r.groups))
	g := group{signature: intern(c.signatures, &r.signatures, at.signature), parent: parent, twin: -1, itemLo: int32(len(r.items))}
	r.items = append(r.items, at.items...)
	g.itemHi = int32(len(r.items))
	r.groups = append(r.groups, g)
	for _, level := range slices.Sorted(maps.Keys(at.levels)) {
		before := int32(-1)
		for _, placeholder := range slices.Sorted(maps.Keys(at.levels[level])) {
			next := int32(len(r.groups))
			c.flatten(at.levels[level][placeholder], self)
			if before >= 0 && r.alike(before, next) {
				r.groups[next].twin = before
			}
			before = next
		}
	}
	r.groups[self].end = int32(len(r.groups))
	r.groups[self].itemEnd = int32(len(r.items))
	r.groups[self].needs = r.sum(r.items[g.itemLo:])
}

// alike reports whether two groups ask for exactly the same, so that exchanging them changes nothing.
func (r *Request) alike(a, b int32) bool {
	width := r.groups[a].end - a
	if r.groups[b].end-b != width || r.groups[a].itemEnd-r.groups[a].itemLo != r.groups[b].itemEnd-r.groups[b].itemLo {
		return false
	}
	for k := range width {
		x, y := &r.groups[a+k], &r.groups[b+k]
		if x.signature != y.signature || x.end-a != y.end-b || x.itemHi-x.itemLo != y.itemHi-y.itemLo {
			return false
		}
	}
	for k := range r.groups[a].itemEnd - r.groups[a].itemLo {
		x, y := &r.items[r.groups[a].itemLo+k], &r.items[r.groups[b].itemLo+k]
		if x.typ != y.typ || x.quantity != y.quantity || x.scorer != y.scorer || x.pin != y.pin {
			return false
		}
	}
	return true
}

// sum returns what the items need together, by kind of resource.
func (r *Request) sum(items []item) []need {
	var needs []need
	for _, it := range items {
		k := slices.IndexFunc(needs, func(n need) bool { return n.typ == it.typ })
		if k < 0 {
			k = len(needs)
			needs = append(needs, need{typ: it.typ})
		}
		needs[k].total = addCapped(needs[k].total, it.quantity)
	}
	return needs
}

// finish computes the digest.
func (c *compiler) finish() {
	r := c.req
	var content encoder
	for _, names := range [][]string{r.signatures, r.types} {
		content.num(int64(len(names)))
		content.str(names...)
	}
	content.num(int64(r.running), int64(len(r.containers)))
	for _, at := range r.containers {
		content.num(int64(at.kind), int64(at.turn), int64(at.groupHi), int64(at.itemHi))
	}
	for _, g := range r.groups {
		content.num(int64(g.signature), int64(g.parent), int64(g.itemLo))
	}
	for _, it := range r.items {
		content.num(int64(it.typ), it.quantity, int64(it.scorer))
		content.str(string(it.pin))
	}
	r.digest = sha256.Sum256(content)
}

// intern returns the number of name, and appends it to names when it is new.
func intern(numbers map[string]int32, names *[]string, name string) int32 {
	i, ok := numbers[name]
	if !ok {
		i = int32(len(*names))
		numbers[name] = i
		*names = append(*names, name)
	}
	return i
}
