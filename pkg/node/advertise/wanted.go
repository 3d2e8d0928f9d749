// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package advertise

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// wanted is what a node with some inventory should look like.
type wanted struct {
	// info is what the annotation says. A node without devices has no annotation.
	info *types.NodeInfo
	// counts are the extended resources. Capacity and allocatable are the same, since the kubelet derives allocatable from
	// capacity: what must not be used is in neither.
	counts map[corev1.ResourceName]int64
}

// want returns what the node with that inventory should look like while its pods ask for as much as asked says. A count does not
// become less than that, nor any less than it is unless it may fall. It does not become more than the node has or had either: what
// a pod asks for may be anything.
func want(node *corev1.Node, inventory *types.NodeInfo, asked map[string]int64, mayFall bool) wanted {
	w := wanted{info: inventory, counts: map[corev1.ResourceName]int64{}}
	for name, capacity := range inventory.KubeCap {
		extended := corev1.ResourceName(name)
		now := countOf(node, extended)
		count := max(inventory.KubeAlloc[name], min(asked[string(name)], max(capacity, now)))
		if !mayFall {
			count = max(count, now)
		}
		w.counts[extended] = count
	}
	return w
}

// countOf returns how much the node has of an extended resource.
func countOf(node *corev1.Node, name corev1.ResourceName) int64 {
	quantity := node.Status.Allocatable[name]
	return quantity.Value()
}

// annotation returns the text of the annotation that node is to have with that inventory, empty for one without devices.
func annotation(node *corev1.Node, inventory *types.NodeInfo) (string, error) {
	if len(inventory.Capacity)+len(inventory.Allocatable) == 0 {
		return "", nil
	}
	value, err := deviceinfo.EncodeNode(inventory)
	if err != nil {
		return "", fmt.Errorf("publish the devices of node %q, %d resources: %w; let the device plugins tell fewer resources, or shorter names",
			node.Name, len(inventory.Capacity), err)
	}
	return value, checkRoom(node, value)
}

// found is the node as it was found, as far as w has to do with it.
func found(node *corev1.Node, w wanted) step {
	before := step{counts: map[corev1.ResourceName]int64{}}
	if info := published(node); info != nil {
		before.allocatable = info.Allocatable
		for name := range info.KubeCap {
			before.counts[corev1.ResourceName(name)] = countOf(node, corev1.ResourceName(name))
		}
	}
	for name := range w.counts {
		before.counts[name] = countOf(node, name)
	}
	return before
}

// published returns the inventory in a node's annotation, or nil if it has none or one that nobody can read: somebody else wrote
// that, and it is about to be replaced. The extended resources are the plain names.
func published(node *corev1.Node) *types.NodeInfo {
	info, err := deviceinfo.DecodeNode(node.Annotations[deviceinfo.Annotation])
	if err != nil {
		return nil
	}
	info.KubeCap, info.KubeAlloc = types.ResourceList{}, types.ResourceList{}
	for name, quantity := range info.Capacity {
		if !strings.HasPrefix(string(name), types.DeviceGroupPrefix+"/") {
			info.KubeCap[name], info.KubeAlloc[name] = quantity, info.Allocatable[name]
		}
	}
	return info
}

// publishedNames returns the extended resources in a node's annotation, sorted.
func publishedNames(node *corev1.Node) []string {
	info := published(node)
	if info == nil {
		return nil
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(info.KubeCap)) {
		names = append(names, string(name))
	}
	return names
}
