// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"cmp"
	"maps"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/grouptree"
	"github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/request/names"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// countedParts are the extended resources by which quotas count parts of devices.
type countedParts struct {
	byLevel map[string][]names.Counted
	// of are the extended resources that count the devices themselves.
	of map[types.ResourceName]bool
}

// newCountedParts returns those for the devices that are counted so. Devices of a level are counted
// by the extended resource whose name ends with the level, such as nvidia.com/gpu for gpu, or by
// the only one that counts them; nodes publish it so, too.
func newCountedParts(counted map[device]types.ResourceName) countedParts {
	plains := map[string]map[types.ResourceName]bool{}
	for counts, plain := range counted {
		if plains[counts.level] == nil {
			plains[counts.level] = map[types.ResourceName]bool{}
		}
		plains[counts.level][plain] = true
	}
	parts := countedParts{map[string][]names.Counted{}, map[types.ResourceName]bool{}}
	for level, of := range plains {
		own := slices.DeleteFunc(slices.Collect(maps.Keys(of)), func(plain types.ResourceName) bool {
			return len(of) > 1 && path.Base(string(plain)) != level
		})
		if len(own) == 1 {
			parts.byLevel[level], parts.of[own[0]] = names.CountedParts(own[0]), true
		}
	}
	return parts
}

// CountedParts returns the extended resources by which quotas count parts of the devices that
// plugins count, in the order of their names.
func (s *Set) CountedParts() []names.Counted {
	var list []names.Counted
	for _, counted := range s.parts.byLevel {
		list = append(list, counted...)
	}
	slices.SortFunc(list, func(a, b names.Counted) int { return cmp.Compare(a.Name, b.Name) })
	return slices.Compact(list)
}

// PartsHeld returns what a pod holds on a node of what quotas count in parts, on all of its devices
// together, in base units such as bytes. Of a device that it has for itself, it holds all. inv may
// be nil for a node that is not known: then such a device counts for nothing.
func (s *Set) PartsHeld(inv *Inventory, holder *Holder) types.ResourceList {
	if inv != nil {
		holder = holder.ByNamesOf(inv)
	}
	sums, whole := types.ResourceList{}, map[string]bool{}
	add := func(name types.ResourceName, quantity int64) {
		if quantity > 0 {
			sums[name] += min(quantity, math.MaxInt64-sums[name])
		}
	}
	for name, quantity := range holder.held {
		from, err := resource.ParsePath(name)
		if err != nil || quantity <= 0 {
			continue
		}
		if _, ok := s.countedAs(name); !ok {
			continue
		}
		whole[from.Device()] = true
		for _, counted := range s.parts.byLevel[from.DeviceLevel()] {
			add(counted.Name, inv.all(from, counted.Quantity))
		}
	}
	for name, quantity := range holder.held {
		from, err := resource.ParsePath(name)
		if err != nil || whole[from.Device()] {
			continue
		}
		for _, counted := range s.parts.byLevel[from.DeviceLevel()] {
			if counted.Quantity == from.Resource() {
				add(counted.Name, quantity)
			}
		}
	}
	return sums
}

// all returns how much of a resource a device has, healthy or not. from is any of its resources.
func (inv *Inventory) all(from resource.Path, name string) int64 {
	if inv == nil {
		return 0
	}
	full := types.ResourceName(strings.TrimSuffix(string(from.Name()), from.Resource()) + name)
	if allocatable, ok := inv.info.Allocatable[full]; ok {
		return allocatable
	}
	device := deviceResourceOf(from)
	device.name = name
	listed := inv.byDevice()[device]
	return max(inv.info.Allocatable[listed], inv.info.Capacity[listed])
}

// RequestedParts returns what a request is for of what quotas count in parts, on all devices
// together, as far as it says so before a node is chosen: parts that are written in base units, of
// the containers that run at the same time. exact says that the pod gets exactly that on each node,
// and else it may get more: devices for itself, a percentage, or more for its init containers. Then
// none says that it gets nothing of it on any node.
func (s *Set) RequestedParts(r *request.Request) (least types.ResourceList, exact, none bool) {
	least, exact = types.ResourceList{}, true
	for _, container := range r.Containers {
		info := r.Content().Container(container.Name)
		parts, devices, whole := s.requestedIn(info)
		initial := container.Kind == grouptree.Init
		if whole || devices < s.countIn(info) || initial && devices > 0 {
			exact = false
		}
		if initial {
			continue
		}
		for name, quantity := range parts {
			least[name] += min(quantity, math.MaxInt64-least[name])
		}
	}
	return least, exact, exact && len(least) == 0
}

// requestedIn returns what a container requests in parts; how many devices it names that have such
// parts; and whether it requests other than in base units of some.
func (s *Set) requestedIn(info types.ContainerInfo) (parts types.ResourceList, devices int64, whole bool) {
	parts = types.ResourceList{}
	named := map[string]bool{}
	for requested, quantity := range info.Requests {
		full := resource.WithPrefix(requested)
		if _, twice := info.Requests[full]; twice && full != requested {
			continue // of two forms of one name the full one counts
		}
		from, err := resource.ParseRequest(full)
		if err != nil || quantity <= 0 || from.Depth() == 0 {
			continue
		}
		counted := s.parts.byLevel[from.DeviceLevel()]
		if len(counted) == 0 {
			continue
		}
		named[from.Device()] = true
		at := slices.IndexFunc(counted, func(c names.Counted) bool { return c.Quantity == from.Resource() })
		if at < 0 {
			whole = true
			continue
		}
		parts[counted[at].Name] += min(quantity, math.MaxInt64-parts[counted[at].Name])
	}
	return parts, int64(len(named)), whole
}

// countIn returns how many devices that have such parts a container counts.
func (s *Set) countIn(info types.ContainerInfo) (count int64) {
	for _, list := range []types.ResourceList{info.Requests, info.KubeRequests} {
		for name, quantity := range list {
			if s.parts.of[name] {
				count = max(count, quantity)
			}
		}
	}
	return count
}
