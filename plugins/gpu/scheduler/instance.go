// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"

	"github.com/kubedevice/kubedevice/plugins/gpu"
)

// Instances of partitioned GPUs are not joined: each that is counted is a request of its own. The
// group scheduler packs: of the instances that are free, a pod is given one of the GPU that is used
// the most, so that whole GPUs stay idle, and can be partitioned again.

// counted is what a container counts: so many devices that have 1 of a resource.
type counted struct {
	plain    types.ResourceName
	resource string
	count    int64
}

// instanceProfiles are the resources of all profiles.
var instanceProfiles = func() (resources []string) {
	for _, profile := range gpu.Profiles() {
		resources = append(resources, gpu.ProfileResource(profile))
	}
	return resources
}()

// profiles returns the resources of the profiles that pods can count: of NVIDIA's GPUs.
func (s *Scheduler) profiles() []string {
	if s.resource != gpu.Resource {
		return nil
	}
	return instanceProfiles
}

// countedInstances returns the instances that a container counts by their profiles, in the order of
// their names.
func (s *Scheduler) countedInstances(container *types.ContainerInfo) (list []counted) {
	if s.resource != gpu.Resource {
		return nil
	}
	for _, requests := range []types.ResourceList{container.KubeRequests, container.Requests} {
		for plain, n := range requests {
			resource, ok := gpu.CountedInstance(plain)
			if !ok || n <= 0 {
				continue
			}
			same := func(c counted) bool { return c.plain == plain }
			if i := slices.IndexFunc(list, same); i >= 0 {
				list[i].count = max(list[i].count, n)
			} else {
				list = append(list, counted{plain: plain, resource: resource, count: n})
			}
		}
	}
	slices.SortFunc(list, func(a, b counted) int { return cmp.Compare(a.plain, b.plain) })
	return list
}

// countInstances returns how many instances of a node have 1 of each resource.
func countInstances(node *types.NodeInfo) map[string]int64 {
	counts := map[string]int64{}
	for name, quantity := range node.Allocatable {
		if resource, ok := instanceResource(name); ok && quantity > 0 {
			counts[resource]++
		}
	}
	return counts
}

// instanceResource returns which resource of an instance a name is for. ok is false for other
// devices.
func instanceResource(name types.ResourceName) (string, bool) {
	path, err := resource.ParsePath(name)
	if err != nil || path.DeviceLevel() != gpu.ComputeLevel {
		return "", false
	}
	return path.Resource(), true
}

// addInstances adds requests for the instances that are counted and not written yet, for a node
// that has so many.
func addInstances(requests types.ResourceList, c counted, has map[string]int64) error {
	for name := range requests {
		if resource, ok := instanceResource(name); ok && resource == c.resource {
			c.count--
		}
	}
	if c.count <= 0 {
		return nil
	}
	if has[c.resource] < c.count {
		return fmt.Errorf("too few MIG instances for %s", c.plain)
	}
	taken := gpuPlaceholders(requests)
	for i := 0; c.count > 0; i++ {
		placeholder := fmt.Sprint(i)
		if taken[placeholder] {
			continue
		}
		types.AddGroupResource(requests, fmt.Sprintf("%s/%s/%s/0/%s/0/%s",
			gpu.Level, placeholder, gpu.InstanceLevel, gpu.ComputeLevel, c.resource), 1)
		c.count--
	}
	return nil
}

// gpuPlaceholders returns the placeholders for GPUs in requests: what has another one may be on
// another GPU.
func gpuPlaceholders(requests types.ResourceList) map[string]bool {
	found := map[string]bool{}
	for _, name := range slices.Collect(maps.Keys(requests)) {
		if path, err := resource.ParsePath(name); err == nil {
			if instance, ok := path.Instance(gpu.Level); ok {
				found[instance] = true
			}
		}
	}
	return found
}
