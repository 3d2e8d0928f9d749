// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kubedevice/kubedevice/pkg/scheduler/claims/allocator"
	"github.com/kubedevice/kubedevice/pkg/scheduler/claims/pool"
)

// slicesOf returns slices that have the chosen devices, in the order in which they were chosen, so
// that upstream's allocator, which takes the first that fits, gives them to the same requests. Each
// pool is complete. With all, the other devices follow: a request for all devices means all of
// them.
func slicesOf(chosen *allocator.Allocation, node *pool.Node, all bool) []*resourceapi.ResourceSlice {
	order := map[*pool.Pool][]*pool.Device{}
	there := map[*pool.Device]bool{}
	add := func(device *pool.Device) {
		if !there[device] {
			there[device] = true
			order[device.Pool] = append(order[device.Pool], device)
		}
	}
	for _, device := range chosen.Devices() {
		add(device)
	}
	if all {
		for _, device := range node.Devices {
			if device.Pool.NotModelled == "" {
				add(device)
			}
		}
	}
	var slices []*resourceapi.ResourceSlice
	for _, p := range node.Pools {
		slices = append(slices, slicesOfPool(order[p])...)
	}
	return slices
}

// slicesOfPool returns slices of one pool with these devices. A device stays with what its slice
// says of nodes; upstream's allocator takes slices by their names.
func slicesOfPool(devices []*pool.Device) []*resourceapi.ResourceSlice {
	var slices []*resourceapi.ResourceSlice
	for i, device := range devices {
		if i == 0 || devices[i-1].Slice != device.Slice {
			slice := *device.Slice
			slice.Name = fmt.Sprintf("%06d", len(slices))
			slice.Spec.Devices = nil
			slices = append(slices, &slice)
		}
		last := slices[len(slices)-1]
		last.Spec.Devices = append(last.Spec.Devices, *device.Spec)
	}
	for _, slice := range slices {
		slice.Spec.Pool.ResourceSliceCount = int64(len(slices))
	}
	return slices
}
