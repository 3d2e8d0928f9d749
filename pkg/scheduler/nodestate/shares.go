// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/sdk/resource"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// Share is a part of a device that a container is given.
type Share struct {
	// Container has the share, and Device is the device's path.
	Container, Device string
	// Resources are what it is given of the device, in base units.
	Resources map[string]int64
	// Enforcement is what holds the container to that.
	Enforcement deviceinfo.Enforcement
}

// Shares returns the parts of devices that a pod has reserved on a node, by container and device. A
// container that has all there is of a resource of a device has the device alone, and no share.
func (c *Cache) Shares(nodeName string, pod *v1.Pod) []Share {
	n, reserved := c.find(nodeName), c.ReservedAllocation(nodeName, pod.UID)
	if n == nil || reserved == nil {
		return nil
	}
	inv := n.inventory.Load()
	if inv == nil || inv.devices == nil {
		return nil
	}
	// What cannot be read counts as nothing, as it does where devices are left out for it.
	enforcement, _ := deviceinfo.DecodeShareEnforcement(inv.source.Annotations[deviceinfo.ShareEnforcementAnnotation])
	onExceeded := pod.Annotations[deviceinfo.OnShareExceededAnnotation]
	var shares []Share
	for name, container := range reserved.Containers() {
		parts, alone := map[string]map[string]int64{}, map[string]bool{}
		for request, from := range container.AllocateFrom {
			path, err := resource.ParsePath(from)
			quantity := container.DevRequests[request]
			if err != nil || quantity <= 0 || resource.IsEnumResource(sdk.ResourceName(path.Resource())) {
				continue
			}
			device := path.Device()
			if quantity >= inv.devices.Quantity(from) {
				alone[device] = true
			}
			if parts[device] == nil {
				parts[device] = map[string]int64{}
			}
			parts[device][path.Resource()] += quantity
		}
		for device, resources := range parts {
			if !alone[device] {
				shares = append(shares, Share{name, device, resources, enforcement.Of(device, onExceeded)})
			}
		}
	}
	slices.SortFunc(shares, func(a, b Share) int {
		return cmp.Or(cmp.Compare(a.Container, b.Container), cmp.Compare(a.Device, b.Device))
	})
	return shares
}
