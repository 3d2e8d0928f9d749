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

// scenario is a node and a pod as the oracle sees them: by name, not compiled.
type scenario struct {
	node types.NodeInfo
	pod  types.PodInfo
	spec []Container

	names []string // what containers returned
	infos map[string]types.ContainerInfo
}

// location has the resource of each request of each container. Names of init containers begin with
// "init/".
type location map[string]types.ResourceLocation

// containers returns the containers by their names in a location, in the order of placement.
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

// resourceMode is the mode of a resource of the node, or of a request with its own scorer.
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

// requestMode is the mode of a container's request for a resource.
func (s *scenario) requestMode(info types.ContainerInfo, request, resource types.ResourceName) string {
	if info.Scorer[request] != 0 {
		return resourceMode(request, info.Scorer)
	}
	if _, ok := info.Scorer[request]; ok {
		return resourceMode(request)
	}
	return resourceMode(resource, s.node.Scorer)
}

// consumes reports whether a container's request uses up the resource that serves it.
func (s *scenario) consumes(info types.ContainerInfo, request, resource types.ResourceName) bool {
	_, own := info.Scorer[request]
	return resourceMode(resource, s.node.Scorer) == "left-over" ||
		own && s.requestMode(info, request, resource) == "left-over"
}

// peak returns the most that the pod uses of each resource at any time, by Kubernetes' formula:
// each init container with the sidecars started before it, then everything that goes on running.
func (s *scenario) peak(where location) map[types.ResourceName]int64 {
	names, infos := s.containers()
	use := func(name string) map[types.ResourceName]int64 {
		sum := map[types.ResourceName]int64{}
		for request, quantity := range infos[name].DevRequests {
			if resource := where[name][request]; s.consumes(infos[name], request, resource) {
				sum[resource] += quantity
			}
		}
		return sum
	}
	most := map[types.ResourceName]int64{}
	raise := func(sums ...map[types.ResourceName]int64) {
		total := map[types.ResourceName]int64{}
		for _, sum := range sums {
			for resource, quantity := range sum {
				total[resource] += quantity
			}
		}
		for resource, quantity := range total {
			most[resource] = max(most[resource], quantity)
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
			for _, previous := range s.spec {
				if previous.Name == initial {
					break
				}
				if previous.Kind == Sidecar {
					step = append(step, use(previous.Name))
				}
			}
			raise(step...)
		}
	}
	return most
}

// problem returns the error of a placement, or "".
func (s *scenario) problem(where location) string {
	names, infos := s.containers()
	for _, name := range names {
		groups := map[string]string{} // placeholder, with those above it → instance, with those above it
		for request := range infos[name].DevRequests {
			resource, ok := where[name][request]
			if !ok {
				return "request " + string(request) + " is not served"
			}
			want, got := strings.Split(string(request), "/"), strings.Split(string(resource), "/")
			if len(want) != len(got) || want[len(want)-1] != got[len(got)-1] {
				return string(resource) + " has not the shape of " + string(request)
			}
			for i := 2; i+1 < len(want); i += 2 {
				if want[i] != got[i] {
					return string(resource) + " has not the levels of " + string(request)
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

// shortage returns the first shortage of a placement with the right shape, or "".
func (s *scenario) shortage(where location) string {
	names, infos := s.containers()
	for _, name := range names {
		for request, quantity := range infos[name].DevRequests {
			resource := where[name][request]
			allocatable, ok := s.node.Allocatable[resource]
			if !ok {
				return "the node has no " + string(resource)
			}
			if s.requestMode(infos[name], request, resource) == "enum" && quantity != 0 && quantity&allocatable == 0 {
				return string(resource) + " has none of the bits of " + string(request)
			}
			if s.consumes(infos[name], request, resource) && resourceMode(resource, s.node.Scorer) != "enum" &&
				s.node.Used[resource] > allocatable {
				return string(resource) + " is over-used and requested"
			}
		}
	}
	for resource, quantity := range s.peak(where) {
		used := s.node.Used[resource]
		if resourceMode(resource, s.node.Scorer) == "enum" {
			used = 0
		}
		if quantity > 0 && used+quantity > s.node.Allocatable[resource] {
			return string(resource) + " is over-committed"
		}
	}
	return ""
}

// score returns the score of the node with the running containers of the pod on it.
func (s *scenario) score(where location) float64 {
	used := types.ResourceList{}
	for resource, quantity := range s.node.Used {
		if resourceMode(resource, s.node.Scorer) != "enum" { // masks are not in use
			used[resource] = quantity
		}
	}
	requested := map[types.ResourceName]int64{}
	modes := map[types.ResourceName]string{} // those that the last running container's own scorers set
	names, infos := s.containers()
	for _, name := range names {
		if strings.HasPrefix(name, "init/") {
			break
		}
		if len(infos[name].DevRequests) == 0 { // it has no effect
			continue
		}
		clear(modes)
		for _, request := range canonical(infos[name].DevRequests) {
			resource := where[name][request]
			requested[resource] |= infos[name].DevRequests[request]
			if s.consumes(infos[name], request, resource) {
				used[resource] += infos[name].DevRequests[request]
			}
			modes[resource] = s.requestMode(infos[name], request, resource)
		}
	}
	sum := 0.0
	kinds := map[string]bool{} // that are requested
	for _, info := range infos {
		for request := range info.DevRequests {
			kinds[kindOf(request)] = true
		}
	}
	resources := slices.DeleteFunc(slices.Sorted(maps.Keys(s.node.Allocatable)), func(name types.ResourceName) bool {
		return strings.HasSuffix(string(name), "/cores") && !kinds[kindOf(name)]
	})
	for _, resource := range resources {
		mode := resourceMode(resource, s.node.Scorer)
		if modes[resource] != "" {
			mode = modes[resource]
		}
		allocatable := s.node.Allocatable[resource]
		switch {
		case allocatable == 0:
		case mode == "enum":
			sum += float64(
				bits.OnesCount64(uint64(allocatable&requested[resource])),
			) / float64(bits.OnesCount64(uint64(allocatable)))
		default:
			sum += min(1, 1-float64(allocatable-used[resource])/float64(allocatable))
		}
	}
	return sum / float64(max(1, len(resources)))
}

// kindOf returns a name without instances and placeholders.
func kindOf(name types.ResourceName) string {
	segments := strings.Split(strings.TrimPrefix(string(name), types.DeviceGroupPrefix+"/"), "/")
	kind := ""
	for i := 0; i < len(segments); i += 2 {
		kind += "/" + segments[i]
	}
	return kind
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

// checkValid fails the test when a placement that fits is not valid.
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
