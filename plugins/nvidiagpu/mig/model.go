// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mig knows how NVIDIA's GPUs can be partitioned, and plans it.
//
// A GPU in MIG mode has memory slices, eight on the GPUs of this package. A GPU instance takes
// consecutive slices, and its profile says how many and where it may begin. Two instances fit
// together when they have no slice in common, and when the GPU has as many engines for them as
// their profiles need, which NVIDIA expresses as the number of instances of a profile.
package mig

// Place is memory slices of a GPU: the first, and how many.
type Place struct{ Start, Size int }

// Profile is a kind of GPU instance.
type Profile struct {
	// Name is NVIDIA's: 1g.10gb+me.
	Name string
	// ID is NVML's number of the profile on the GPU.
	ID uint32
	// Slices is how much of the GPU's compute it has, in sevenths.
	Slices int
	// MemoryMiB is what an instance has of the GPU's memory.
	MemoryMiB int
	// Max is how many instances can be of the profile.
	Max int
	// Places are where an instance can be.
	Places []Place
}

// Model is a model of GPU.
type Model struct {
	// Name is as NVML has it.
	Name string
	// MemoryMiB is all of its memory.
	MemoryMiB int
	// Profiles are in the order of NVML's numbers for kinds of profiles
	// (NVML_GPU_INSTANCE_PROFILE_…).
	Profiles []Profile
}

// places returns the places of that size that begin at these slices.
func places(size int, starts ...int) (list []Place) {
	for _, start := range starts {
		list = append(list, Place{Start: start, Size: size})
	}
	return list
}

// sevenths are the profiles of the GPUs with seven slices of compute and eight of memory, which
// differ in the sizes of the memory alone. The numbers are those of NVIDIA's MIG User Guide
// (supported MIG profiles, and the output of nvidia-smi mig -lgip and -lgipp).
func sevenths(names [7]string, memory [5]int) []Profile {
	return []Profile{
		{Name: names[0], ID: 19, Slices: 1, MemoryMiB: memory[0], Max: 7, Places: places(1, 0, 1, 2, 3, 4, 5, 6)},
		{Name: names[1], ID: 14, Slices: 2, MemoryMiB: memory[1], Max: 3, Places: places(2, 0, 2, 4)},
		{Name: names[2], ID: 9, Slices: 3, MemoryMiB: memory[2], Max: 2, Places: places(4, 0, 4)},
		{Name: names[3], ID: 5, Slices: 4, MemoryMiB: memory[3], Max: 1, Places: places(4, 0)},
		{Name: names[4], ID: 0, Slices: 7, MemoryMiB: memory[4], Max: 1, Places: places(8, 0)},
		{Name: names[5], ID: 20, Slices: 1, MemoryMiB: memory[0], Max: 1, Places: places(1, 0, 1, 2, 3, 4, 5, 6)},
		{Name: names[6], ID: 15, Slices: 1, MemoryMiB: memory[1], Max: 4, Places: places(2, 0, 2, 4, 6)},
	}
}

// A100With40GB is the A100 with 40 GB.
func A100With40GB() Model {
	return Model{Name: "NVIDIA A100-SXM4-40GB", MemoryMiB: 40960, Profiles: sevenths(
		[7]string{"1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb", "1g.5gb+me", "1g.10gb"},
		[5]int{4864, 9856, 19968, 19968, 40192})}
}

// A100With80GB is the A100 with 80 GB.
func A100With80GB() Model {
	return Model{Name: "NVIDIA A100-SXM4-80GB", MemoryMiB: 81920, Profiles: sevenths(
		[7]string{"1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb", "1g.10gb+me", "1g.20gb"},
		[5]int{9728, 19968, 40192, 40192, 81152})}
}

// H100With80GB is the H100 with 80 GB.
func H100With80GB() Model {
	return Model{Name: "NVIDIA H100 80GB HBM3", MemoryMiB: 81559, Profiles: sevenths(
		[7]string{"1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb", "1g.10gb+me", "1g.20gb"},
		[5]int{9984, 20096, 40448, 40448, 81152})}
}
