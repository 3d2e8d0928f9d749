// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"slices"
	"strings"

	sdkresource "github.com/kubedevice/kubedevice/pkg/sdk/resource"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// The levels below a GPU that is partitioned.
const (
	// InstanceLevel is that of GPU instances: a part of the GPU's memory and engines.
	InstanceLevel = "gi"
	// ComputeLevel is that of compute instances, which share the GPU instance that they are in.
	// Containers are given compute instances. Their IDs are unique on the node.
	ComputeLevel = "ci"
)

// instancePrefix begins the resource that an instance has, before its profile.
const instancePrefix = "mig-"

// domain is that of the plain counts of instances.
const domain = "nvidia.com/"

// Instance is a compute instance of a partitioned GPU.
type Instance struct {
	// ID is unique on the node and contains no slash.
	ID string
	// GPUInstance is the number of the GPU instance that it is in, on its GPU.
	GPUInstance int
	// Resource is what the instance has 1 of: ProfileResource of its profile, or Cards where the
	// plain count of GPUs counts instances.
	Resource string
	// Unhealthy instances count in the node's capacity and are not allocatable.
	Unhealthy bool
}

// ProfileResource returns the resource that instances of a profile have: mig-1g.10gb of 1g.10gb. A
// plus sign, as in 1g.10gb+me, cannot be part of a Kubernetes resource, and becomes a dot.
func ProfileResource(profile string) string {
	return instancePrefix + strings.ReplaceAll(profile, "+", ".")
}

// PlainCount returns the plain resource that counts instances which have that resource:
// nvidia.com/mig-1g.10gb.
func PlainCount(resource string) types.ResourceName { return domain + types.ResourceName(resource) }

// CountedInstance returns the resource of the instances that a plain resource counts. ok is false
// for one that counts something else.
func CountedInstance(plain types.ResourceName) (resource string, ok bool) {
	resource, ok = strings.CutPrefix(string(plain), domain)
	return resource, ok && strings.HasPrefix(resource, instancePrefix)
}

// Profiles are the profiles that GPUs are known to have, from NVIDIA's MIG User Guide (supported
// MIG profiles), and for those of several slices the ones that divide them between compute
// instances. Pods can count instances of these. Instances of others they can only name by their
// paths.
func Profiles() []string {
	var all []string
	for _, memory := range []struct{ one, two, half, whole string }{
		{"5gb", "10gb", "20gb", "40gb"},   // A100 with 40 GB
		{"10gb", "20gb", "40gb", "80gb"},  // A100 and H100 with 80 GB
		{"12gb", "24gb", "47gb", "94gb"},  // H100 with 94 GB
		{"12gb", "24gb", "48gb", "96gb"},  // H100 with 96 GB, H20
		{"18gb", "35gb", "71gb", "141gb"}, // H200
		{"18gb", "36gb", "72gb", "144gb"}, // GH200 with 144 GB
		{"23gb", "45gb", "90gb", "180gb"}, // B200
		{"23gb", "46gb", "93gb", "186gb"}, // GB200
		{"24gb", "47gb", "95gb", "189gb"},
	} {
		all = append(all, "1g."+memory.one, "1g."+memory.one+"+me", "1g."+memory.two)
		all = append(all, divided(2, memory.two)...)
		all = append(all, divided(3, memory.half)...)
		all = append(all, divided(4, memory.half)...)
		all = append(all, divided(7, memory.whole)...)
	}
	all = append(all, "1g.6gb", "1g.6gb+me", "2g.12gb+me") // A30
	all = append(all, divided(2, "12gb")...)
	all = append(all, divided(4, "24gb")...)
	for _, memory := range []string{"24gb", "48gb", "96gb"} { // RTX PRO 6000 Blackwell
		slices := map[string]string{"24gb": "1g.", "48gb": "2g.", "96gb": "4g."}[memory]
		all = append(all, slices+memory, slices+memory+"+gfx")
		if memory != "96gb" {
			all = append(all, slices+memory+"-me", slices+memory+"+me.all")
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// divided returns the profile of so many slices, and those of compute instances of fewer.
func divided(count int, memory string) []string {
	whole := string(rune('0'+count)) + "g." + memory
	all := []string{whole}
	for _, part := range []int{1, 2, 3, 4} {
		if part < count {
			all = append(all, string(rune('0'+part))+"c."+whole)
		}
	}
	return all
}

// Instances returns the IDs of the instances that are allocated to the container, sorted.
func Instances(container *types.ContainerInfo) []string {
	var ids []string
	for _, name := range container.AllocateFrom {
		if path, err := sdkresource.ParsePath(name); err == nil && path.DeviceLevel() == ComputeLevel {
			ids = append(ids, path.DeviceID())
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}
