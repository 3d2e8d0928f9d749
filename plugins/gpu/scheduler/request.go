// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"

	"github.com/kubedevice/kubedevice/plugins/gpu"
)

// generateTopology is the request that decides how counted GPUs are placed: see topologyMode. Users
// write it for the pod or for a container; the container's has precedence.
const generateTopology types.ResourceName = "gpu/gpu-generate-topology"

// topologyMode is how the counted GPUs of a container are placed.
type topologyMode int

const (
	anywhere topologyMode = iota // each GPU by itself; users write 0
	required                     // by the best topology of any node; users write 1
	// preferred is by the best topology that is free on the node, and anywhere if that is none. It
	// is the default, unless the cluster requires topology.
	preferred
)

// translate writes the pod's requests for GPUs into the DevRequests of its containers, for that
// node. Entries that the plugins before this one wrote stay. mode returns how the counted GPUs of a
// container are placed.
func (s *Scheduler) translate(node *types.NodeInfo, pod *types.PodInfo, mode modeFunc) error {
	if err := s.checkCounted(pod); err != nil {
		return err
	}
	has := devices{
		gpus: countGPUs(node.Allocatable), all: countGPUs(node.Capacity), memory: memoryOf(node),
		instances: countInstances(node),
	}
	for _, containers := range []map[string]types.ContainerInfo{pod.InitContainers, pod.RunningContainers} {
		for _, name := range slices.Sorted(maps.Keys(containers)) {
			container := containers[name]
			if err := s.translateContainer(has, pod, &container, mode); err != nil {
				return fmt.Errorf("container %q: %w", name, err)
			}
			containers[name] = container
		}
	}
	return nil
}

// devices are how many GPUs a node has for pods, how many it has with those that are unhealthy or
// tainted, the memory of each (see memoryOf), and how many instances with each resource.
type devices struct {
	gpus, all int64
	memory    int64
	instances map[string]int64
}

// checkCounted refuses a pod whose containers count so many GPUs or instances that writing down a
// request for each would take long, before any is written.
func (s *Scheduler) checkCounted(pod *types.PodInfo) error {
	left := int64(maxCounted)
	for _, containers := range []map[string]types.ContainerInfo{pod.InitContainers, pod.RunningContainers} {
		for _, container := range containers {
			gpus := counted{
				plain: s.resource, count: s.counts(&container),
			}
			for _, c := range append(s.countedInstances(&container), gpus) {
				if c.count > left {
					return fmt.Errorf("the pod: its containers count more than %d of %s: request fewer", maxCounted,
						c.plain)
				}
				left -= max(0, c.count)
			}
		}
	}
	return nil
}

// translateContainer writes the requests of one container, for a node that has so many devices.
func (s *Scheduler) translateContainer(
	has devices, pod *types.PodInfo, container *types.ContainerInfo, modeOf modeFunc,
) error {
	if slices.ContainsFunc(slices.Collect(maps.Keys(container.DevRequests)), isOurs) {
		return nil // another GPU plugin has served it
	}
	mode, err := modeOf(pod, container)
	if err != nil {
		return err
	}
	requests := types.ResourceList{}
	for _, name := range slices.Sorted(maps.Keys(container.Requests)) { // of two forms of one name the full one counts
		if full, ok := devicePath(name); ok {
			requests[full] = container.Requests[name]
		}
	}
	if err := translateMillionths(requests, has.memory); err != nil {
		return err
	}
	if err := checkHeld(requests); err != nil {
		return err
	}
	if err := checkCores(requests); err != nil {
		return err
	}
	count := s.counts(container)
	best := func(int) topology { return nil }
	if mode == required {
		best = s.nodes.bestFor
	}
	if has.gpus == 0 && has.instances[gpu.Cards] > 0 {
		err = s.addCountedInstances(requests, count, best, has.instances)
	} else {
		err = s.addCountedGPUs(requests, count, best, has)
	}
	if err != nil {
		return err
	}
	for _, instances := range s.countedInstances(container) {
		if err := addInstances(requests, instances, has.instances); err != nil {
			return err
		}
	}
	if len(requests) == 0 {
		return nil
	}

	types.FillContainerInfo(container)
	written := spread(requests, count)
	for name, lifted := range lift(requests) {
		container.DevRequests[lifted] = requests[name]
		full := name
		if original, renamed := written[name]; renamed {
			full = original
		}
		short := types.ResourceName(strings.TrimPrefix(string(full), types.DeviceGroupPrefix+"/"))
		for _, written := range []types.ResourceName{short, full} {
			if scorer, ok := container.Scorer[written]; ok {
				container.Scorer[lifted] = scorer
			}
		}
	}
	return nil
}

// addCountedGPUs adds requests for the GPUs that are counted and not written yet, for a node that
// has so many.
func (s *Scheduler) addCountedGPUs(
	requests types.ResourceList, count int64, best func(int) topology, has devices,
) error {
	written := len(placeholders(requests))
	missing := count - int64(written)
	if missing <= 0 {
		return nil
	}
	if count > has.gpus && count <= has.all {
		return fmt.Errorf("too few GPUs for %d of %s that are healthy and not tainted: %d of %d are", count, s.resource,
			has.gpus, has.all)
	}
	if count > has.gpus {
		return fmt.Errorf("too few GPUs for %d of %s", count, s.resource)
	}
	if written > 0 {
		best = func(int) topology { return nil }
	}
	addCounted(requests, int(missing), best)
	return nil
}

// addCountedInstances is addCountedGPUs for a node whose GPUs are all partitioned, and where the
// count of GPUs is of instances. These are never connected: where topology decides, a container
// that counts several goes to a node with GPUs, if there is one that has so many.
func (s *Scheduler) addCountedInstances(
	requests types.ResourceList, count int64, best func(int) topology, has map[string]int64,
) error {
	if count > 1 && best(int(count)) != nil {
		return fmt.Errorf("MIG instances are not connected: for %d of %s whole GPUs are used, or write %s: 0",
			count, s.resource, generateTopology)
	}
	return addInstances(requests, counted{plain: s.resource, resource: gpu.Cards, count: count}, has)
}

// counts returns how many GPUs a container counts.
func (s *Scheduler) counts(container *types.ContainerInfo) int64 {
	return max(container.KubeRequests[s.resource], container.Requests[s.resource])
}

// modeFunc returns how the counted GPUs of a container are placed.
type modeFunc func(*types.PodInfo, *types.ContainerInfo) (topologyMode, error)

// requires is the modeFunc of a cluster that requires topology where nothing is written.
func requires(pod *types.PodInfo, container *types.ContainerInfo) (topologyMode, error) {
	return written(required, pod.Requests, container.Requests)
}

// prefers is the modeFunc of a cluster that prefers topology where nothing is written.
func prefers(pod *types.PodInfo, container *types.ContainerInfo) (topologyMode, error) {
	return written(preferred, pod.Requests, container.Requests)
}

// prefersAfterWait is prefers for pods that have waited for what they require.
func prefersAfterWait(pod *types.PodInfo, container *types.ContainerInfo) (topologyMode, error) {
	mode, err := prefers(pod, container)
	if mode == required {
		mode = preferred
	}
	return mode, err
}

// written returns the mode that is written in the last of the lists that has one, and otherwise
// the mode where none is written.
func written(mode topologyMode, lists ...types.ResourceList) (topologyMode, error) {
	for _, list := range lists {
		for _, name := range []types.ResourceName{generateTopology, resource.WithPrefix(generateTopology)} {
			value, ok := list[name]
			if ok && value != 0 && value != 1 {
				return mode, fmt.Errorf("%s is %d: use 1 to require the best topology, 0 for GPUs anywhere, or "+
					"leave it out", name, value)
			}
			if ok {
				mode = topologyMode(value)
			}
		}
	}
	return mode, nil
}

// placeholders returns the distinct GPUs that requests name, with the groups that they are in.
func placeholders(requests types.ResourceList) map[string]bool {
	found := map[string]bool{}
	for name := range requests {
		if _, kind, ok := gpu.Split(name); ok {
			found[device(name, kind)] = true
		}
	}
	return found
}

// device returns the name of a GPU that has the resource of that name and kind.
func device(name types.ResourceName, kind string) string {
	return strings.TrimSuffix(string(name), "/"+kind)
}

// checkHeld checks that the container holds the card or memory of each GPU that it requests
// anything of: a container sees a GPU that serves any of its requests, and without card and memory
// that could be the GPU of another one.
func checkHeld(requests types.ResourceList) error {
	held := map[string]bool{}
	for name, quantity := range requests {
		if _, kind, ok := gpu.Split(name); ok && quantity > 0 && (kind == gpu.Cards || kind == gpu.Memory) {
			held[device(name, kind)] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		if quantity := requests[name]; quantity < 1 {
			return fmt.Errorf("%s is %d: request at least 1", name, quantity)
		}
	}
	for _, placeholder := range slices.Sorted(maps.Keys(placeholders(requests))) {
		if !held[placeholder] {
			return fmt.Errorf("of %s neither %s nor %s is requested: request one of them",
				placeholder, gpu.Cards, gpu.Memory)
		}
	}
	return nil
}

// checkCores refuses requests for more cores than a GPU shares: one whose cores a container has all
// is not shared.
func checkCores(requests types.ResourceList) error {
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		if _, kind, ok := gpu.Split(name); ok && kind == gpu.Cores && requests[name] >= gpu.AllCores {
			return fmt.Errorf("%s is %d: request 1 to %d, or %s/%s for the whole GPU", name, requests[name],
				gpu.AllCores-1, device(name, kind), gpu.Cards)
		}
	}
	return nil
}

// addCounted adds requests for n whole GPUs: by the best topology, or one by one without.
func addCounted(requests types.ResourceList, n int, best func(int) topology) {
	if shape := best(n); shape != nil {
		shape.addTo(requests)
		return
	}
	written := placeholders(requests)
	for i := 0; n > 0; i++ {
		name := types.ResourceName(fmt.Sprintf("%s/%s/%d/%s", types.DeviceGroupPrefix, gpu.Level, i, gpu.Cards))
		if !written[device(name, gpu.Cards)] {
			requests[name] = 1
			n--
		}
	}
}
