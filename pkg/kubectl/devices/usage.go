// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Usage is how much of one kind of device is in use, on a node or on all.
type Usage struct {
	// Node is empty for all nodes.
	Node string `json:"node,omitempty"`
	Kind string `json:"kind"`
	// Devices is the sum of Free, Cordoned, Tainted, Shared, Whole and Unhealthy: each device
	// counts once. Devices that are gone do not count.
	Devices int `json:"devices"`
	// Free are those of which nothing is in use, and which each pod may have.
	Free int `json:"free"`
	// Cordoned and Tainted are those of which nothing is in use either, but which no new pod gets,
	// or none but pods that tolerate their taints. Cordoned are also those of a node that takes no
	// pods.
	Cordoned int `json:"cordoned"`
	Tainted  int `json:"tainted"`
	// Shared and Whole are those that are in use, with or without taints.
	Shared    int `json:"shared"`
	Whole     int `json:"whole"`
	Unhealthy int `json:"unhealthy"`
	// UsedDevices is how much is in use of the healthy ones, in devices: a device of which three
	// quarters are in use counts as 0.75.
	UsedDevices float64 `json:"usedDevices"`
	// Measured is the sum over the devices of which it is known. It is nil if that is none.
	Measured *Measured `json:"measured,omitempty"`
	// Resources are the sums over the healthy ones, except masks, by name.
	Resources []Resource `json:"resources"`
	// LargestFree is the largest group of which no device is in use, on any one node: the node
	// itself, a group of it, or a single device. Unhealthy devices and those with taints do not
	// count: they are neither free nor in the way. It is nil when no device is free, as on a node
	// that takes no pods.
	LargestFree *Group `json:"largestFreeGroup,omitempty"`
	// MostFree is, for each level of groups, the group with the most free devices, outermost first.
	MostFree []LevelFree `json:"mostFreeByLevel,omitempty"`
}

// Group is devices of one kind that are in one group.
type Group struct {
	Node string `json:"node"`
	// Path is the group's path, such as gpugrp1/0/gpugrp0/1; empty for the node itself.
	Path string `json:"path"`
	// Devices is how many devices of the kind it has that are healthy and have no taints, and Free
	// how many of them are free.
	Devices int `json:"devices"`
	Free    int `json:"free"`
}

// LevelFree is the group of a level with the most free devices.
type LevelFree struct {
	// Level is the name of the innermost level of the group.
	Level string `json:"level"`
	Group
}

// UsageList is the usage of each kind on each node, and on all of them together.
type UsageList struct {
	metav1.TypeMeta `json:",inline"`
	// Items are by node, then by kind. A node without devices has none.
	Items []*Usage `json:"items"`
	// Totals are by kind.
	Totals []*Usage `json:"totals"`
}

// NewUsage returns the usage of the devices of nodes.
func NewUsage(nodes []*Node) *UsageList {
	list := &UsageList{TypeMeta: TypeMeta("UsageList"), Items: []*Usage{}, Totals: []*Usage{}}
	totals := map[string]*Usage{}
	for _, node := range nodes {
		for _, usage := range usageOf(node) {
			list.Items = append(list.Items, usage)
			if totals[usage.Kind] == nil {
				totals[usage.Kind] = &Usage{Kind: usage.Kind, Resources: []Resource{}}
			}
			totals[usage.Kind].add(usage)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(totals)) {
		list.Totals = append(list.Totals, totals[kind])
	}
	return list
}

// usageOf returns the usage of a node's devices, by kind.
func usageOf(node *Node) []*Usage {
	kinds := map[string]*Usage{}
	groups := map[string]map[string]*Group{} // by kind and path
	kindOf := map[string]string{}            // of the device with that path
	for _, d := range node.Devices {
		kindOf[d.Path] = d.Kind
	}
	for _, d := range node.Devices {
		if d.Health == Gone {
			continue
		}
		usage := kinds[d.Kind]
		if usage == nil {
			usage = &Usage{Node: node.Name, Kind: d.Kind, Resources: []Resource{}}
			kinds[d.Kind], groups[d.Kind] = usage, map[string]*Group{}
		}
		usage.Devices++
		usage.addMeasured(d.Measured)
		usage.count(d, node.TakesPods())
		if d.Health == Unhealthy {
			continue
		}
		usage.UsedDevices += d.usedPart()
		usage.addResources(d.Resources)
		if len(d.Taints) > 0 || !node.TakesPods() {
			continue // to pods that do not tolerate them it is like an unhealthy one
		}
		free := 0
		if d.Use == Free {
			free = 1
		}
		for _, path := range append(groupsOf(d.Path), d.Path) {
			group := groups[d.Kind][path]
			if group == nil {
				group = &Group{Node: node.Name, Path: path}
				groups[d.Kind][path] = group
			}
			group.Devices++
			group.Free += free
		}
	}
	list := make([]*Usage, 0, len(kinds))
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		kinds[kind].findGroups(groups[kind], kindOf)
		list = append(list, kinds[kind])
	}
	return list
}

// count counts a device as what it is, on a node that takes pods or does not.
func (u *Usage) count(d *Device, takesPods bool) {
	switch {
	case d.Health == Unhealthy:
		u.Unhealthy++
	case d.Use == Shared:
		u.Shared++
	case d.Use == Whole:
		u.Whole++
	case d.Cordoned(), !takesPods:
		u.Cordoned++
	case len(d.Taints) > 0:
		u.Tainted++
	default:
		u.Free++
	}
}

// groupsOf returns the paths of the groups that a device is in, from the outermost, which is the
// node, to the innermost.
func groupsOf(path string) []string {
	groups := []string{""}
	slashes := 0
	for i := range len(path) {
		if path[i] != '/' {
			continue
		}
		if slashes++; slashes%2 == 0 {
			groups = append(groups, path[:i])
		}
	}
	return groups
}

// findGroups finds the groups with free devices. groups are those of the kind, devices included;
// kindOf has the kinds of all devices of the node, by path. A node chooses how many kinds it has,
// so nothing is done here for each device of another kind.
func (u *Usage) findGroups(groups map[string]*Group, kindOf map[string]string) {
	levels := map[string]*LevelFree{}
	for _, path := range slices.SortedFunc(maps.Keys(groups), comparePaths) {
		group := groups[path]
		if group.Free > 0 && group.Free == group.Devices {
			u.LargestFree = larger(u.LargestFree, group)
		}
		if path == "" || kindOf[path] == u.Kind {
			continue
		}
		level := levelOf(path)
		if best := levels[level]; best == nil || group.Free > best.Free {
			levels[level] = &LevelFree{lastLevel(path), *group}
		}
	}
	for _, level := range slices.SortedFunc(maps.Keys(levels), comparePaths) {
		u.MostFree = append(u.MostFree, *levels[level])
	}
}

// larger returns the group with more free devices. Of equal ones of a node it is the inner one,
// whose devices are connected more closely, and else the first.
func larger(a, b *Group) *Group {
	inside := func() bool { return a.Node == b.Node && (a.Path == "" || strings.HasPrefix(b.Path, a.Path+"/")) }
	if a == nil || b != nil && (b.Free > a.Free || b.Free == a.Free && inside()) {
		return b
	}
	return a
}

// levelOf returns the levels that lead to a group, and lastLevel the innermost of them.
func levelOf(path string) string {
	levels := ""
	for level := range levelsOf(path) {
		levels += "/" + level
	}
	return levels
}

func lastLevel(path string) string {
	last := ""
	for level := range levelsOf(path) {
		last = level
	}
	return last
}

// levelsOf yields the levels of a group with their instances.
func levelsOf(group string) func(func(string, string) bool) {
	// The path of a group and of a resource differ by the name of the resource.
	path, _ := resource.ParsePath(types.ResourceName(types.DeviceGroupPrefix + "/" + group + "/group"))
	return path.Levels()
}

// addResources adds the resources of a device, or the sums of others.
func (u *Usage) addResources(resources []Resource) {
	for _, r := range resources {
		if r.Mask() {
			continue
		}
		i, found := slices.BinarySearchFunc(u.Resources, r.Name, func(have Resource, name string) int {
			return cmp.Compare(have.Name, name)
		})
		if !found {
			u.Resources = slices.Insert(u.Resources, i, Resource{Name: r.Name})
		}
		sum := &u.Resources[i]
		sum.Capacity = addCapped(sum.Capacity, r.Capacity)
		sum.Allocatable = addCapped(sum.Allocatable, r.Allocatable)
		sum.Used = addCapped(sum.Used, r.Used)
		sum.Outside = addCapped(sum.Outside, r.Outside)
	}
}

// addMeasured adds the real use of a device, or the sum of others.
func (u *Usage) addMeasured(m *Measured) {
	if m == nil {
		return
	}
	if u.Measured == nil {
		u.Measured = &Measured{MemoryUnowned: device.Read(0)}
	}
	sum := u.Measured
	sum.MemoryTotal = addCapped(sum.MemoryTotal, m.MemoryTotal)
	sum.MemoryUsed = addCapped(sum.MemoryUsed, m.MemoryUsed)
	before, knew := sum.MemoryUnowned.Value()
	more, knows := m.MemoryUnowned.Value()
	sum.MemoryUnowned = device.Reading{}
	if knew && knows {
		sum.MemoryUnowned = device.Read(addCapped(before, more))
	}
}

// addCapped adds quantities, up to the largest int64: what nodes report is of any size.
func addCapped(a, b int64) int64 {
	if b > math.MaxInt64-a {
		return math.MaxInt64
	}
	return a + b
}

// add adds the usage of a node to the usage of all.
func (u *Usage) add(other *Usage) {
	u.Devices += other.Devices
	u.Free += other.Free
	u.Cordoned += other.Cordoned
	u.Tainted += other.Tainted
	u.Shared += other.Shared
	u.Whole += other.Whole
	u.Unhealthy += other.Unhealthy
	u.UsedDevices += other.UsedDevices
	u.addResources(other.Resources)
	u.addMeasured(other.Measured)
	u.LargestFree = larger(u.LargestFree, other.LargestFree)
	for _, level := range other.MostFree {
		i := slices.IndexFunc(u.MostFree, func(have LevelFree) bool {
			return levelOf(have.Path) == levelOf(level.Path)
		})
		switch {
		case i < 0:
			u.MostFree = append(u.MostFree, level)
		case level.Free > u.MostFree[i].Free:
			u.MostFree[i] = level
		}
	}
}

// Percent returns how much of the healthy devices is in use, in percent; 1 if it is less and not
// nothing.
func (u *Usage) Percent() int {
	if healthy := u.Devices - u.Unhealthy; healthy > 0 {
		return percent(u.UsedDevices / float64(healthy))
	}
	return 0
}
