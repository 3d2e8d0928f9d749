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

// VirtualDevices are how often each device of an extended resource counts in the node's status;
// once if it is not among them. So as many pods can count a device and share it. The annotation has
// the devices themselves.
type VirtualDevices map[types.ResourceName]int64

// Count returns the count of so many devices.
func (v VirtualDevices) Count(name types.ResourceName, devices int64) int64 {
	return devices * max(1, v[name])
}

// wanted is the state of the Node object for an inventory.
type wanted struct {
	// info is what the annotation says. A node without devices has no annotation.
	info *types.NodeInfo
	// counts are the extended resources, in both capacity and allocatable: the kubelet derives
	// allocatable from capacity, so unhealthy devices are in neither.
	counts map[corev1.ResourceName]int64
	// parts are the extended resources that count parts of devices, in both, too. The annotation
	// does not list them.
	parts map[corev1.ResourceName]int64
}

// published returns all extended resources of the node's status.
func (w wanted) published() map[corev1.ResourceName]int64 {
	all := maps.Clone(w.counts)
	maps.Copy(all, w.parts)
	return all
}

// newWanted returns the wanted state for the inventory. A count is at least what pods request, and
// at least what it is now unless it may fall. It is at most what the node has or had: a pod can
// request any number. Each device counts as often as virtual says.
func newWanted(
	node *corev1.Node, inventory *types.NodeInfo, virtual VirtualDevices, requested map[string]int64, mayFall bool,
) wanted {
	w := wanted{info: inventory, counts: map[corev1.ResourceName]int64{}, parts: map[corev1.ResourceName]int64{}}
	count := func(name corev1.ResourceName, has total) int64 {
		now := countOf(node, name)
		count := max(has.allocatable, min(requested[string(name)], max(has.capacity, now)))
		if !mayFall {
			count = max(count, now)
		}
		return count
	}
	for name, capacity := range inventory.KubeCap {
		extended := corev1.ResourceName(name)
		w.counts[extended] = count(extended,
			total{virtual.Count(name, capacity), virtual.Count(name, inventory.KubeAlloc[name])})
	}
	for name, has := range partsOf(inventory) {
		if _, isCount := w.counts[name]; !isCount {
			w.parts[name] = count(name, has)
		}
	}
	return w
}

// countOf returns how much the node has of an extended resource.
func countOf(node *corev1.Node, name corev1.ResourceName) int64 {
	quantity := node.Status.Allocatable[name]
	return quantity.Value()
}

// annotation returns the annotation for the inventory. It is empty for one without devices.
func annotation(node *corev1.Node, inventory *types.NodeInfo) (string, error) {
	if len(inventory.Capacity)+len(inventory.Allocatable) == 0 {
		return "", nil
	}
	value, err := deviceinfo.EncodeNode(inventory)
	if err != nil {
		return "", fmt.Errorf(
			"publish the devices of node %q, %d resources: %w; let the device plugins report fewer resources, or "+
				"shorter names",
			node.Name, len(inventory.Capacity), err)
	}
	return value, checkSize(node, value)
}

// firstStep is what the node has before the first patch, of what w and its annotation list.
func firstStep(node *corev1.Node, w wanted) step {
	before := step{counts: map[corev1.ResourceName]int64{}, parts: map[corev1.ResourceName]int64{}}
	if info := published(node); info != nil {
		before.allocatable = info.Allocatable
		for name := range info.KubeCap {
			before.counts[corev1.ResourceName(name)] = countOf(node, corev1.ResourceName(name))
		}
		for name := range partsOf(info) {
			before.parts[name] = countOf(node, name)
		}
	}
	for name := range w.counts {
		before.counts[name] = countOf(node, name)
	}
	for name := range w.parts {
		before.parts[name] = countOf(node, name)
	}
	return before
}

// published returns the inventory in a node's annotation. It returns nil if there is none, or one
// that cannot be decoded, which is about to be replaced. The extended resources are the names that
// are no device paths.
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
