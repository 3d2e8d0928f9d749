// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grouptree

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"testing"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// scenario is a node and a pod, as an oracle sees them: by name, without anything compiled.
type scenario struct {
	node types.NodeInfo
	pod  types.PodInfo
	spec []Container

	names []string // what containers returned
	infos map[string]types.ContainerInfo
}

// location says where each request of each container goes; init containers have "init/" before
// their name.
type location map[string]types.ResourceLocation

// containers returns the containers by their names in a location, in the order in which they are
// placed.
func (s *scenario) containers() (names []string, infos map[string]types.ContainerInfo) {
	if s.infos != nil {
		return s.names, s.infos
	}
	s.infos = map[string]types.ContainerInfo{}
	for _, name := range slices.Sorted(maps.Keys(s.pod.RunningContainers)) {
		s.names = append(s.names, name)
		s.infos[name] = s.pod.RunningContainers[name]
	}
	for _, name := range slices.Sorted(maps.Keys(s.pod.InitContainers)) {
		s.names = append(s.names, "init/"+name)
		s.infos["init/"+name] = s.pod.InitContainers[name]
	}
	return s.names, s.infos
}

// resourceMode is how the node treats a resource, or a request for it when it has a scorer of its
// own.
func resourceMode(name types.ResourceName, scorers ...types.ResourceScorer) string {
	for _, scorer := range scorers {
		if number := scorer[name]; number != 0 {
			return []string{"", "left-over", "enum"}[number]
		}
	}
	last := string(name)[strings.LastIndex(string(name), "/")+1:]
	if strings.HasPrefix(strings.ToLower(last), "enum") {
		return "enum"
	}
	return "left-over"
}

// requestMode is how a container's request for a resource is treated.
func (s *scenario) requestMode(info types.ContainerInfo, request, at types.ResourceName) string {
	if info.Scorer[request] != 0 {
		return resourceMode(request, info.Scorer)
	}
	if _, ok := info.Scorer[request]; ok {
		return resourceMode(request)
	}
	return resourceMode(at, s.node.Scorer)
}

// consumes reports whether a container's request uses up the resource that serves it.
func (s *scenario) consumes(info types.ContainerInfo, request, at types.ResourceName) bool {
	_, own := info.Scorer[request]
	return resourceMode(at, s.node.Scorer) == "left-over" || own && s.requestMode(info, request, at) == "left-over"
}

// peak returns the most that the pod uses of each resource at any time, by Kubernetes' formula:
// each init container with the sidecars started before it, then everything that goes on running.
func (s *scenario) peak(where location) map[types.ResourceName]int64 {
	names, infos := s.containers()
	use := func(name string) map[types.ResourceName]int64 {
		sum := map[types.ResourceName]int64{}
		for request, quantity := range infos[name].DevRequests {
			if at := where[name][request]; s.consumes(infos[name], request, at) {
				sum[at] += quantity
			}
		}
		return sum
	}
	most := map[types.ResourceName]int64{}
	raise := func(sums ...map[types.ResourceName]int64) {
		total := map[types.ResourceName]int64{}
		for _, sum := range sums {
			for at, quantity := range sum {
				total[at] += quantity
			}
		}
		for at, quantity := range total {
			most[at] = max(most[at], quantity)
		}
	}
	var running []map[types.ResourceName]int64
	for _, name := range names {
		if !strings.HasPrefix(name, "init/") {
			running = append(running, use(name))
		}
	}
	raise(running...)
	for _, name := range names {
		if initial, ok := strings.CutPrefix(name, "init/"); ok {
			step := []map[types.ResourceName]int64{use(name)}
			for _, before := range s.spec {
				if before.Name == initial {
					break
				}
				if before.Kind == Sidecar {
					step = append(step, use(before.Name))
				}
			}
			raise(step...)
		}
	}
	return most
}

// problem returns what is wrong with a placement, or "".
func (s *scenario) problem(where location) string {
	names, infos := s.containers()
	for _, name := range names {
		groups := map[string]string{} // placeholder, with those above it → instance, with those above it
		for request := range infos[name].DevRequests {
			at, ok := where[name][request]
			if !ok {
				return "request " + string(request) + " is not served"
			}
			want, got := strings.Split(string(request), "/"), strings.Split(string(at), "/")
			if len(want) != len(got) || want[len(want)-1] != got[len(got)-1] {
				return string(at) + " has not the shape of " + string(request)
			}
			for i := 2; i+1 < len(want); i += 2 {
				if want[i] != got[i] {
					return string(at) + " has not the levels of " + string(request)
				}
				placeholder, instance := strings.Join(want[:i+2], "/"), strings.Join(got[:i+2], "/")
				if groups[placeholder] != "" && groups[placeholder] != instance {
					return "placeholder " + placeholder + " is on " + groups[placeholder] + " and on " + instance
				}
				groups[placeholder] = instance
			}
		}
	}
	return s.shortage(where)
}

// shortage returns what a placement of the right shape has too little of, or "".
func (s *scenario) shortage(where location) string {
	names, infos := s.containers()
	for _, name := range names {
		for request, quantity := range infos[name].DevRequests {
			at := where[name][request]
			allocatable, ok := s.node.Allocatable[at]
			if !ok {
				return "the node has no " + string(at)
			}
			if s.requestMode(infos[name], request, at) == "enum" && quantity != 0 && quantity&allocatable == 0 {
				return string(at) + " has none of the bits of " + string(request)
			}
			if s.consumes(infos[name], request, at) && resourceMode(at, s.node.Scorer) != "enum" &&
				s.node.Used[at] > allocatable {
				return string(at) + " is over-used and requested"
			}
		}
	}
	for at, quantity := range s.peak(where) {
		used := s.node.Used[at]
		if resourceMode(at, s.node.Scorer) == "enum" {
			used = 0
		}
		if quantity > 0 && used+quantity > s.node.Allocatable[at] {
			return string(at) + " is over-committed"
		}
	}
	return ""
}

// score returns the score of the node with the running containers of the pod on it.
func (s *scenario) score(where location) float64 {
	used := types.ResourceList{}
	for at, quantity := range s.node.Used {
		if resourceMode(at, s.node.Scorer) != "enum" { // masks are never in use
			used[at] = quantity
		}
	}
	asked := map[types.ResourceName]int64{}
	modes := map[types.ResourceName]string{} // those that the last running container's own scorers set
	names, infos := s.containers()
	for _, name := range names {
		if strings.HasPrefix(name, "init/") {
			break
		}
		clear(modes)
		for _, request := range canonical(infos[name].DevRequests) {
			at := where[name][request]
			asked[at] |= infos[name].DevRequests[request]
			if s.consumes(infos[name], request, at) {
				used[at] += infos[name].DevRequests[request]
			}
			modes[at] = s.requestMode(infos[name], request, at)
		}
	}
	sum := 0.0
	resources := slices.Sorted(maps.Keys(s.node.Allocatable))
	for _, at := range resources {
		mode := resourceMode(at, s.node.Scorer)
		if modes[at] != "" {
			mode = modes[at]
		}
		allocatable := s.node.Allocatable[at]
		switch {
		case allocatable == 0:
		case mode == "enum":
			sum += float64(
				bits.OnesCount64(uint64(allocatable&asked[at])),
			) / float64(bits.OnesCount64(uint64(allocatable)))
		default:
			sum += min(1, 1-float64(allocatable-used[at])/float64(allocatable))
		}
	}
	return sum / float64(max(1, len(resources)))
}

// canonical returns the requests of a container in canonical order: those of a group before those
// of the groups below.
func canonical(requests types.ResourceList) []types.ResourceName {
	names := slices.Collect(maps.Keys(requests))
	slices.SortFunc(names, func(a, b types.ResourceName) int {
		x, y := strings.Split(string(a), "/"), strings.Split(string(b), "/")
		for i := 2; ; i += 2 {
			if i+1 >= len(x) || i+1 >= len(y) { // one of them is at its resource
				return cmp.Or(cmp.Compare(len(x), len(y)), slices.Compare(x[i:], y[i:]))
			}
			if order := slices.Compare(x[i:i+2], y[i:i+2]); order != 0 {
				return order
			}
		}
	})
	return names
}

// checkValid fails the test when a placement that fits is not a placement.
func checkValid(tb testing.TB, s *scenario, tree *DeviceTree, req *Request, got *Placement) {
	tb.Helper()
	if problem := s.problem(locations(s, tree, req, got)); problem != "" {
		tb.Errorf("the placement is not valid: %s\nnode: %v\npod: %v", problem, s.node, s.pod)
	}
}

// locations returns a placement by name.
func locations(s *scenario, tree *DeviceTree, req *Request, p *Placement) location {
	pod := s.pod
	req.Apply(tree, p, &pod)
	where := location{}
	for name, info := range pod.RunningContainers {
		where[name] = info.AllocateFrom
	}
	for name, info := range pod.InitContainers {
		where["init/"+name] = info.AllocateFrom
	}
	return where
}
