// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package advertise

import (
	"path"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/request/names"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// The status of a node also lists how much of their memory and cores its devices have together, as
// extended resources: see [names.CountedParts]. They are no devices, so the annotation has none of
// them, and no plugin serves them: the kubelet only adds up what pods request. That is at most what
// the pods are allocated, as a pod requests for each device what it counts once. So the counts must
// not fall either below what active pods request.

// total is how much of a quantity the devices have, in the unit of the extended resource.
type total struct{ capacity, allocatable int64 }

// partsOf returns the totals of an inventory. A device counts for the extended resource whose name
// ends with the device's level, such as nvidia.com/gpu for gpu, or for the only one that there is.
// Where several names end with the level, it counts for none.
func partsOf(inventory *types.NodeInfo) map[corev1.ResourceName]total {
	totals := map[corev1.ResourceName]total{}
	byLevel := map[string][]names.Counted{}
	for name, capacity := range inventory.Capacity {
		device, err := resource.ParsePath(name)
		if err != nil || device.Depth() == 0 {
			continue
		}
		level := device.DeviceLevel()
		if _, known := byLevel[level]; !known {
			byLevel[level] = nil
			if devices, ok := countingLevel(inventory.KubeCap, level); ok {
				byLevel[level] = names.CountedParts(devices)
			}
		}
		for _, counted := range byLevel[level] {
			if counted.Quantity == device.Resource() {
				sum := totals[corev1.ResourceName(counted.Name)]
				sum.capacity += max(0, capacity/counted.Unit)
				sum.allocatable += max(0, inventory.Allocatable[name]/counted.Unit)
				totals[corev1.ResourceName(counted.Name)] = sum
			}
		}
	}
	return totals
}

// countingLevel returns the extended resource that counts devices of a level.
func countingLevel(extended types.ResourceList, level string) (devices types.ResourceName, ok bool) {
	several := false
	for name := range extended {
		switch {
		case path.Base(string(name)) == level:
			several = several || ok
			devices, ok = name, true
		case len(extended) == 1:
			return name, true
		}
	}
	return devices, ok && !several
}

// partNames returns the names of the extended resources that count parts of devices of these.
func partNames(extended []string) (list []string) {
	for _, devices := range extended {
		for _, counted := range names.CountedParts(types.ResourceName(devices)) {
			list = append(list, string(counted.Name))
		}
	}
	return list
}
