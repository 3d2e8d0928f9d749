// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package names

import (
	"path"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// The quantities of a device that containers share, as docs/vendors/plugins.md has them.
const (
	memoryQuantity = "memory" // in bytes
	coresQuantity  = "cores"  // percent of a device's compute time
)

// maxName is the longest name of an extended resource after its domain, in bytes, by Kubernetes'
// rules.
const maxName = 63

// Counted is an extended resource by which quotas count parts of devices, on all devices of a
// container together.
type Counted struct {
	// Name is the extended resource. Nodes list it, with what all of their devices have.
	Name types.ResourceName
	// Quantity is the resource of the devices that it counts.
	Quantity string
	// Unit is how much of the quantity one of it is: of memory 1 MiB.
	Unit int64
}

// CountedParts returns the extended resources that count parts of the devices of an extended
// resource: HAMi's nvidia.com/gpumem and nvidia.com/gpucores for nvidia.com/gpu, and for others
// such as example.com/gpu the names example.com/gpu.memory and example.com/gpu.cores.
func CountedParts(devices types.ResourceName) []Counted {
	list := []Counted{
		{types.ResourceName(hamiMemory), memoryQuantity, mebibyte},
		{types.ResourceName(hamiCores), coresQuantity, 1},
	}
	if devices == GPUs {
		return list
	}
	own := list[:0]
	for _, counted := range list {
		counted.Name = devices + "." + types.ResourceName(counted.Quantity)
		if len(path.Base(string(counted.Name))) <= maxName {
			own = append(own, counted)
		}
	}
	return own
}
