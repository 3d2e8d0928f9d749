// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/kubeletdevice"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Cluster is what the nodes of a cluster have: names, and the most of each on one node or device.
// Unhealthy devices count. It is immutable.
type Cluster struct {
	plain  types.ResourceList       // extended resources, the most on one node
	levels map[string]bool          // of device paths
	most   map[kind]int64           // of a device's resource, the most on one device
	whole  map[kind]map[string]bool // the extended resources that count a device's resource
	// ids are the devices of kubelet device plugins, by their resource, and numa the NUMA nodes of
	// these devices. Both are spelled as in the names of the devices.
	ids, numa map[types.ResourceName]map[string]bool
}

// kind is a resource of devices of one level.
type kind struct{ level, resource string }

// NewCluster returns what nodes have. Inventories that cannot be read count as empty:
// [github.com/kubedevice/kubedevice/pkg/kubectl/devices.NewNode] says what is wrong with them.
func NewCluster(nodes []*corev1.Node) *Cluster {
	c := &Cluster{
		plain: types.ResourceList{}, levels: map[string]bool{}, most: map[kind]int64{},
		whole: map[kind]map[string]bool{}, ids: map[types.ResourceName]map[string]bool{},
		numa: map[types.ResourceName]map[string]bool{},
	}
	for _, node := range nodes {
		for name, quantity := range node.Status.Capacity {
			c.addPlain(types.ResourceName(name), quantity.Value())
		}
		if info, err := deviceinfo.DecodeNode(node.Annotations[deviceinfo.Annotation]); err == nil {
			c.addInventory(info)
		}
	}
	return c
}

func (c *Cluster) addPlain(name types.ResourceName, quantity int64) {
	if resource.IsExtendedResource(name) {
		c.plain[name] = max(c.plain[name], quantity)
	}
}

func addTo(sets map[types.ResourceName]map[string]bool, name types.ResourceName, member string) {
	if sets[name] == nil {
		sets[name] = map[string]bool{}
	}
	sets[name][member] = true
}

// addInventory adds what a node's own annotation lists.
func (c *Cluster) addInventory(info *types.NodeInfo) {
	devices, single := map[kind]int64{}, map[kind]bool{}
	for name, quantity := range info.Capacity {
		path, err := resource.ParsePath(name)
		if err != nil {
			c.addPlain(name, quantity)
			continue
		}
		for level := range path.Levels() {
			c.levels[level] = true
		}
		if extended, numa, id, ok := kubeletdevice.ParseRequest(name); ok {
			addTo(c.ids, extended, id)
			addTo(c.numa, extended, numa)
		}
		k := kind{path.DeviceLevel(), path.Resource()}
		single[k] = quantity == 1 && (devices[k] == 0 || single[k])
		devices[k]++
		c.most[k] = max(c.most[k], quantity)
	}
	// A plain count is one of devices if it is called as they are and counts as many. What each of
	// them has 1 of, and nothing else, is then a whole device.
	for k, count := range devices {
		for name, quantity := range info.Capacity {
			if single[k] && quantity == count && countsLevel(name, k.level) {
				if c.whole[k] == nil {
					c.whole[k] = map[string]bool{}
				}
				c.whole[k][string(name)] = true
			}
		}
	}
}

// countsLevel reports whether a plain resource is called like the devices of a level:
// nvidia.com/gpu like gpu.
func countsLevel(name types.ResourceName, level string) bool {
	return resource.IsExtendedResource(name) && strings.HasSuffix(string(name), "/"+level)
}

// plainNames returns the names of the extended resources in their order.
func (c *Cluster) plainNames() []string {
	var names []string
	for name := range c.plain {
		names = append(names, string(name))
	}
	slices.Sort(names)
	return names
}

func (c *Cluster) levelNames() []string { return slices.Sorted(maps.Keys(c.levels)) }

// resourcesOf returns the names of the resources that devices of a level have, in their order.
func (c *Cluster) resourcesOf(level string) []string {
	var names []string
	for k := range c.most {
		if k.level == level {
			names = append(names, k.resource)
		}
	}
	slices.Sort(names)
	return names
}
