// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// compiler collects a request.
type compiler struct {
	req        *Request
	signatures map[string]int32
	types      map[string]int32
	known      map[typeName]int32 // types, without joining their names
	total      int64
	unordered  bool  // the spec does not name an init container
	places     []int // by type, while needs are summed: the need's index plus 1, or 0
}

// typeName is the parts of a type's name.
type typeName struct{ signature, resource string }

// placeholder collects a group of requests, or those of a container as a whole.
type placeholder struct {
	level, instance string
	signature       string
	items           []item
	groups          []*placeholder
}

// group returns the group below this one. Requests come in the order of their names, so that those
// of one group come one after another.
func (p *placeholder) group(level, instance string) *placeholder {
	next := &placeholder{level: level, instance: instance}
	if n := len(p.groups); n > 0 && p.groups[n-1].level == level {
		last := p.groups[n-1]
		if last.instance == instance {
			return last
		}
		next.signature = last.signature
	} else {
		next.signature = join(p.signature, level)
	}
	p.groups = append(p.groups, next)
	return next
}

// count allocates memory for all requests of the pod. It returns an error for more than MaxRequests
// before it does any work for them.
func (c *compiler) count(pod *types.PodInfo) error {
	count := 0
	for _, containers := range []map[string]types.ContainerInfo{pod.RunningContainers, pod.InitContainers} {
		for _, name := range slices.Sorted(maps.Keys(containers)) {
			if count += len(containers[name].DevRequests); count > MaxRequests {
				return fmt.Errorf("container %q: the pod makes more than %d device requests: use fewer",
					name, MaxRequests)
			}
		}
	}
	c.req.items, c.req.groups = make([]item, 0, count), make([]group, 0, count)
	return nil
}

// container adds one container.
func (c *compiler) container(name string, kind Kind, order int, info types.ContainerInfo) error {
	root := &placeholder{}
	for _, request := range slices.Sorted(maps.Keys(info.DevRequests)) {
		if !resource.IsGroupResourceName(request) {
			continue
		}
		if err := c.request(root, request, info); err != nil {
			return fmt.Errorf("container %q: device request %q: %w", name, request, err)
		}
	}
	for _, request := range slices.Sorted(maps.Keys(info.AllocateFrom)) {
		if _, ok := info.DevRequests[request]; !ok && resource.IsGroupResourceName(request) {
			return fmt.Errorf("container %q: %q is served by %q but not requested",
				name, request, info.AllocateFrom[request])
		}
	}
	if root.items == nil && root.groups == nil {
		return nil // containers without requests take no part in placement
	}
	if len(c.req.containers) == MaxContainers {
		return fmt.Errorf("container %q: more than %d containers of the pod request devices: "+
			"request them in fewer containers", name, MaxContainers)
	}
	ctr := container{
		name:    name,
		kind:    kind,
		order:   order,
		groupLo: int32(len(c.req.groups)),
		itemLo:  int32(len(c.req.items)),
	}
	c.flatten(root, -1)
	ctr.groupHi, ctr.itemHi = int32(len(c.req.groups)), int32(len(c.req.items))
	c.req.containers = append(c.req.containers, ctr)
	return nil
}

// request adds one requested resource to the tree of its container.
func (c *compiler) request(root *placeholder, name types.ResourceName, info types.ContainerInfo) error {
	path, err := resource.ParsePath(name)
	if err != nil {
		return err
	}
	it := item{name: name, quantity: info.DevRequests[name], pin: info.AllocateFrom[name]}
	if it.quantity < 0 {
		return fmt.Errorf("the quantity is negative (%d)", it.quantity)
	}
	// So no sum of quantities can overflow, with any scorers of a node.
	if it.quantity > math.MaxInt64-c.total {
		return fmt.Errorf("the pod's requests add up to more than %d", int64(math.MaxInt64))
	}
	c.total += it.quantity
	if scorer, ok := info.Scorer[name]; ok {
		if it.scorer, err = modeOf(scorer, name); err != nil {
			return err
		}
		c.req.rescored = true
	}
	c.req.pinned = c.req.pinned || it.pin != ""
	ph := root
	for level, instance := range path.Levels() {
		ph = ph.group(level, instance)
	}
	it.typ = c.typeOf(ph.signature, path.Resource())
	ph.items = append(ph.items, it)
	return nil
}

// typeOf returns the number of a kind of resource.
func (c *compiler) typeOf(signature, resource string) int32 {
	number, ok := c.known[typeName{signature, resource}]
	if !ok {
		number = intern(c.types, &c.req.types, join(signature, resource))
		c.known[typeName{signature, resource}] = number
	}
	return number
}

// flatten writes a placeholder and all below it, depth first.
func (c *compiler) flatten(ph *placeholder, parent int32) {
	r := c.req
	self := int32(len(r.groups))
	g := group{
		signature: intern(c.signatures, &r.signatures, ph.signature),
		parent:    parent,
		twin:      -1,
		itemLo:    int32(len(r.items)),
		different: isDifferent(ph.instance),
	}
	r.items = append(r.items, ph.items...)
	g.itemHi = int32(len(r.items))
	r.groups = append(r.groups, g)
	slices.SortFunc(ph.groups, func(a, b *placeholder) int {
		return cmp.Or(cmp.Compare(a.level, b.level), cmp.Compare(a.instance, b.instance))
	})
	start := int32(-1)
	for k, below := range ph.groups {
		if k > 0 && ph.groups[k-1].level != below.level {
			start = -1
		}
		next := int32(len(r.groups))
		c.flatten(below, self)
		if start >= 0 && r.alike(start, next) {
			r.groups[next].twin = start
		}
		start = next
	}
	r.groups[self].end = int32(len(r.groups))
	r.groups[self].itemEnd = int32(len(r.items))
	r.groups[self].needs = c.sum(r.items[g.itemLo:])
}

// alike reports whether two groups have equal requests, so that exchanging them changes nothing.
func (r *Request) alike(a, b int32) bool {
	width := r.groups[a].end - a
	if r.groups[b].end-b != width || r.groups[a].itemEnd-r.groups[a].itemLo != r.groups[b].itemEnd-r.groups[b].itemLo {
		return false
	}
	for k := range width {
		x, y := &r.groups[a+k], &r.groups[b+k]
		if x.signature != y.signature || x.end-a != y.end-b || x.itemHi-x.itemLo != y.itemHi-y.itemLo ||
			x.different != y.different {
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
func (c *compiler) sum(items []item) []need {
	if missing := len(c.req.types) - len(c.places); missing > 0 {
		c.places = append(c.places, make([]int, missing)...)
	}
	var needs []need
	for _, it := range items {
		if c.places[it.typ] == 0 {
			needs = append(needs, need{typ: it.typ})
			c.places[it.typ] = len(needs)
		}
		total := &needs[c.places[it.typ]-1].total
		*total = addCapped(*total, it.quantity)
	}
	for _, need := range needs {
		c.places[need.typ] = 0
	}
	return needs
}

// finish renumbers the remaining containers in order, so that containers without requests have no
// effect, and computes the results of all containers: needs, conditions and the digest.
func (c *compiler) finish() {
	r := c.req
	var orders []int
	for _, ctr := range r.containers {
		orders = append(orders, ctr.order)
	}
	slices.Sort(orders)
	orders = slices.Compact(orders)
	for k := range r.containers {
		r.containers[k].order, _ = slices.BinarySearch(orders, r.containers[k].order)
	}
	if r.running > 0 {
		r.needs = c.sum(r.items[:r.containers[r.running-1].itemHi])
	}
	c.countAsKubernetes()
	r.findConditions()
	var content encoder
	for _, names := range [][]string{r.signatures, r.types} {
		content.num(int64(len(names)))
		content.str(names...)
	}
	content.num(int64(r.running), int64(len(r.containers)), int64(len(r.counted)))
	for _, ctr := range r.containers {
		content.num(int64(ctr.kind), int64(ctr.order), int64(ctr.groupHi), int64(ctr.itemHi))
	}
	for _, g := range r.groups {
		content.num(int64(g.signature), int64(g.parent), int64(g.itemLo))
	}
	for _, it := range r.items {
		content.num(int64(it.typ), it.quantity, int64(it.scorer))
		content.str(string(it.pin))
	}
	for i, g := range r.groups {
		if g.different {
			content.num(int64(i))
		}
	}
	r.digest = sha256.Sum256(content)
}

// countAsKubernetes sets counted: the most that is in use at any time, as Holdings has it, if init
// containers share what they can.
func (c *compiler) countAsKubernetes() {
	r := c.req
	if r.running == len(r.containers) || c.unordered {
		return
	}
	r.counted = make([]int64, len(r.types))
	sum := func(sums []int64, ctr container) {
		for _, it := range r.items[ctr.itemLo:ctr.itemHi] {
			sums[it.typ] = addCapped(sums[it.typ], it.quantity)
		}
	}
	for _, ctr := range r.containers[:r.running] {
		sum(r.counted, ctr)
	}
	for _, ctr := range r.containers[r.running:] {
		step := make([]int64, len(r.types))
		sum(step, ctr)
		for _, sidecar := range r.containers[:r.running] {
			if sidecar.kind == Sidecar && sidecar.order <= ctr.order {
				sum(step, sidecar)
			}
		}
		for typ, quantity := range step {
			r.counted[typ] = max(r.counted[typ], quantity)
		}
	}
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

// CompileRequest builds the request of a pod from its containers' DevRequests, Scorer and
// AllocateFrom. It ignores names outside resource/group.
//
// spec lists the pod's containers in the order of its spec, init containers first; it says which of
// the running containers are sidecars, whose devices an init container that runs after them cannot
// share. A container that it does not name counts as regular when it is among the running ones, and
// as a last init container otherwise; Kubernetes' count of the pod's devices is then unknown.
//
// The placer does not search for a request that AllocateFrom serves already: it checks and scores
// it.
//
// It returns an error that names container and request when a name is not a path of levels and
// placeholders, a quantity is negative, the quantities of the pod add up to more than an int64, a
// scorer number is unknown, AllocateFrom serves something that is not requested, or there are more
// than MaxRequests or MaxContainers.
func CompileRequest(pod *types.PodInfo, spec []Container) (*Request, error) {
	c := compiler{
		req: &Request{}, signatures: map[string]int32{}, types: map[string]int32{}, known: map[typeName]int32{},
	}
	if err := c.count(pod); err != nil {
		return nil, err
	}
	orders := make(map[string]int, len(spec))
	for order, member := range spec {
		orders[member.Name] = order
	}
	for _, name := range slices.Sorted(maps.Keys(pod.RunningContainers)) {
		kind := Regular
		order, named := orders[name]
		if named && spec[order].Kind == Sidecar {
			kind = Sidecar
		}
		if err := c.container(name, kind, order, pod.RunningContainers[name]); err != nil {
			return nil, err
		}
	}
	c.req.running = len(c.req.containers)
	for _, name := range slices.Sorted(maps.Keys(pod.InitContainers)) {
		order, named := orders[name]
		if !named {
			order, c.unordered = len(spec), true
		}
		if err := c.container(name, Init, order, pod.InitContainers[name]); err != nil {
			return nil, err
		}
	}
	c.finish()
	return c.req, nil
}
