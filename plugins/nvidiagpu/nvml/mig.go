// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package nvml

// #include "library.h"
import "C"

import (
	"errors"
	"fmt"
	"strings"

	"github.com/kubedevice/kubedevice/plugins/nvidiagpu/mig"
)

// NVML's limits: profiles are numbered below profileCount, compute profiles below ciProfileCount.
// No GPU has more GPU instances of a profile, or places for one, than maxPlaces.
const (
	profileCount   = 0x40 // more than NVML_GPU_INSTANCE_PROFILE_COUNT, which grows
	ciProfileCount = 0x8  // NVML_COMPUTE_INSTANCE_PROFILE_COUNT
	maxPlaces      = 64
)

// NoInstance stands in an XID for the number of a GPU instance or compute instance where the driver
// knows none.
const NoInstance = ^uint32(0)

// The codes of a number that the driver doesn't know, and of one at which no instance is.
const (
	invalidArgument = 2
	notFound        = 6
)

// Instance is a compute instance of a partitioned GPU.
type Instance struct {
	// UUID is the name that the instance has everywhere: MIG-….
	UUID string
	// GPUInstance is the number of the GPU instance that it is in, on the GPU; ComputeInstance its
	// own number in that.
	GPUInstance, ComputeInstance uint32
	// Profile is NVIDIA's name of its kind: 1g.10gb, or 1c.3g.40gb for one that shares the memory
	// of its GPU instance with others.
	Profile string
	// Place is the memory slices of the GPU instance.
	Place mig.Place
}

// IsMissing reports whether an error says that the driver or the GPU doesn't know what was asked.
func IsMissing(err error) bool {
	var nvmlErr *Error
	return errors.As(err, &nvmlErr) && (nvmlErr.Code == NotSupported || nvmlErr.Code == FunctionNotFound)
}

// Partitioned reports whether the GPU is in MIG mode: it is used by its instances alone. GPUs and
// drivers that don't know MIG are not.
func (d Device) Partitioned() (bool, error) {
	var mode C.uint
	err := d.library.check("query a GPU for its MIG mode", C.library_mig_mode(&d.library.functions, d.handle, &mode))
	if IsMissing(err) {
		return false, nil
	}
	return err == nil && mode != 0, err
}

// Minor returns the number of the GPU's device node: 0 of /dev/nvidia0.
func (d Device) Minor() (int, error) {
	var minor C.uint
	err := d.library.check("query a GPU for its device node", C.library_minor(&d.library.functions, d.handle, &minor))
	return int(minor), err
}

// Instances returns the instances of a partitioned GPU, in NVML's order.
func (d Device) Instances() ([]Instance, error) {
	handles, err := d.instanceHandles()
	if err != nil {
		return nil, err
	}
	profiles, err := d.Profiles()
	if err != nil {
		return nil, err
	}
	var list []Instance
	for _, handle := range handles {
		instance, err := d.instance(handle, profiles)
		if err != nil {
			return nil, err
		}
		list = append(list, instance)
	}
	return list, nil
}

// InstanceDevices returns the instances of a partitioned GPU by their UUIDs, for the calls that are
// for instances, too: MemoryUsage and Processes. They are valid until the instance is destroyed.
func (d Device) InstanceDevices() (map[string]Device, error) {
	handles, err := d.instanceHandles()
	if err != nil {
		return nil, err
	}
	devices := make(map[string]Device, len(handles))
	for _, handle := range handles {
		uuid, err := handle.UUID()
		if err != nil {
			return nil, err
		}
		devices[uuid] = handle
	}
	return devices, nil
}

// instanceHandles returns the GPU's instances, in NVML's order.
func (d Device) instanceHandles() (handles []Device, err error) {
	var count C.uint
	if err := d.library.check("count the MIG instances of a GPU",
		C.library_mig_max(&d.library.functions, d.handle, &count)); err != nil {
		return nil, err
	}
	for i := range count {
		handle := Device{library: d.library}
		err := d.library.check(fmt.Sprintf("find MIG instance number %d of a GPU", i),
			C.library_mig_by_index(&d.library.functions, d.handle, i, &handle.handle))
		var nvmlErr *Error
		if errors.As(err, &nvmlErr) && nvmlErr.Code == notFound {
			continue
		}
		if err != nil {
			return nil, err
		}
		handles = append(handles, handle)
	}
	return handles, nil
}

// instance returns what is behind the handle of one of the GPU's instances.
func (d Device) instance(handle Device, profiles []mig.Profile) (instance Instance, err error) {
	if instance.UUID, err = handle.UUID(); err != nil {
		return instance, err
	}
	var gi, ci C.uint
	if err := d.library.check("query a MIG instance for its number",
		C.library_mig_ids(&d.library.functions, handle.handle, &gi, &ci)); err != nil {
		return instance, err
	}
	instance.GPUInstance, instance.ComputeInstance = uint32(gi), uint32(ci)
	var attributes C.struct_nvml_attributes
	if err := d.library.check("query a MIG instance for its size",
		C.library_mig_attributes(&d.library.functions, handle.handle, &attributes)); err != nil {
		return instance, err
	}
	info, err := d.gpuInstance(uint32(gi))
	if err != nil {
		return instance, err
	}
	instance.Place = info.Place
	for _, profile := range profiles {
		if profile.ID == info.Profile {
			instance.Profile = profile.Name
		}
	}
	if instance.Profile == "" {
		return instance, fmt.Errorf("MIG instance %s has profile %d, which its GPU does not list", instance.UUID,
			info.Profile)
	}
	if attributes.ci_slices != attributes.gi_slices {
		instance.Profile = fmt.Sprintf("%dc.%s", attributes.ci_slices, instance.Profile)
	}
	return instance, nil
}

// GPUInstance is a GPU instance, with compute instances or without.
type GPUInstance struct {
	// ID is its number on the GPU, Profile the ID of its profile.
	ID, Profile uint32
	// Place is its memory slices.
	Place mig.Place
}

// gpuInstance returns the GPU instance of that number.
func (d Device) gpuInstance(id uint32) (GPUInstance, error) {
	var gi C.nvml_gi
	if err := d.library.check(fmt.Sprintf("find GPU instance %d", id),
		C.library_gi_by_id(&d.library.functions, d.handle, C.uint(id), &gi)); err != nil {
		return GPUInstance{}, err
	}
	return d.library.describe(gi)
}

func (l *Library) describe(gi C.nvml_gi) (GPUInstance, error) {
	var info C.struct_nvml_gi_info
	err := l.check("query what a GPU instance is", C.library_gi_info(&l.functions, gi, &info))
	return GPUInstance{
		ID: uint32(info.id), Profile: uint32(info.profile),
		Place: mig.Place{Start: int(info.placement.start), Size: int(info.placement.size)},
	}, err
}

// Profiles returns the kinds of GPU instances that the GPU can have. They are read once.
func (d Device) Profiles() ([]mig.Profile, error) {
	d.library.mu.Lock()
	defer d.library.mu.Unlock()
	if list, ok := d.library.profiles[d.handle]; ok {
		return list, nil
	}
	list, err := d.queryProfiles()
	if err == nil {
		d.library.profiles[d.handle] = list
	}
	return list, err
}

func (d Device) queryProfiles() (list []mig.Profile, err error) {
	for index := range C.uint(profileCount) {
		var profile C.struct_nvml_gi_profile
		err := d.library.check("query a GPU for its MIG profiles",
			C.library_gi_profile(&d.library.functions, d.handle, index, &profile))
		var nvmlErr *Error
		if errors.As(err, &nvmlErr) && (nvmlErr.Code == NotSupported || nvmlErr.Code == invalidArgument) {
			continue // the GPU has none of that number, or the driver knows no such number
		}
		if err != nil {
			return nil, err
		}
		name := strings.TrimPrefix(C.GoString(&profile.name[0]), "MIG ")
		p := mig.Profile{
			ID: uint32(profile.id), Name: name, Max: int(profile.instances),
			Slices: int(profile.slices), MemoryMiB: int(profile.memory),
		}
		if p.Places, err = d.places(p.ID); err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, nil
}

// places returns where instances of a profile can be.
func (d Device) places(profile uint32) (list []mig.Place, err error) {
	var placements [maxPlaces]C.struct_nvml_placement
	count := C.uint(maxPlaces)
	if err := d.library.check("query where a MIG profile can be", C.library_gi_placements(
		&d.library.functions, d.handle, C.uint(profile), &placements[0], &count)); err != nil {
		return nil, err
	}
	for _, p := range placements[:min(count, maxPlaces)] {
		list = append(list, mig.Place{Start: int(p.start), Size: int(p.size)})
	}
	return list, nil
}

// GPUInstances returns the GPU instances of a partitioned GPU, also those without compute
// instances.
func (d Device) GPUInstances() (list []GPUInstance, err error) {
	profiles, err := d.Profiles()
	if err != nil {
		return nil, err
	}
	for _, profile := range profiles {
		var found [maxPlaces]C.nvml_gi
		count := C.uint(maxPlaces)
		if err := d.library.check("list the GPU instances of a GPU", C.library_gi_list(
			&d.library.functions, d.handle, C.uint(profile.ID), &found[0], &count)); err != nil {
			return nil, err
		}
		for _, gi := range found[:min(count, maxPlaces)] {
			instance, err := d.library.describe(gi)
			if err != nil {
				return nil, err
			}
			list = append(list, instance)
		}
	}
	return list, nil
}

// CreateGPUInstance creates a GPU instance without compute instances, and returns its number. The
// driver refuses one that does not fit next to those that there are.
func (d Device) CreateGPUInstance(profile mig.Profile, place mig.Place) (uint32, error) {
	placement := C.struct_nvml_placement{start: C.uint(place.Start), size: C.uint(place.Size)}
	var gi C.nvml_gi
	if err := d.library.check("create a GPU instance of "+profile.Name, C.library_gi_create(
		&d.library.functions, d.handle, C.uint(profile.ID), &placement, &gi)); err != nil {
		return 0, err
	}
	created, err := d.library.describe(gi)
	return created.ID, err
}

// CreateComputeInstance creates a compute instance that has all of a GPU instance, which has no
// other.
func (d Device) CreateComputeInstance(gpuInstance uint32, profile mig.Profile) error {
	var gi C.nvml_gi
	if err := d.library.check(fmt.Sprintf("find GPU instance %d", gpuInstance),
		C.library_gi_by_id(&d.library.functions, d.handle, C.uint(gpuInstance), &gi)); err != nil {
		return err
	}
	for index := range C.uint(ciProfileCount) {
		var kind C.struct_nvml_ci_profile
		err := d.library.check("query a GPU instance for its compute profiles",
			C.library_ci_profile(&d.library.functions, gi, index, &kind))
		if IsMissing(err) {
			continue
		}
		if err != nil {
			return err
		}
		if int(kind.slices) == profile.Slices {
			var ci C.nvml_ci
			return d.library.check("create a compute instance of "+profile.Name,
				C.library_ci_create(&d.library.functions, gi, kind.id, &ci))
		}
	}
	return fmt.Errorf("GPU instance %d has no compute profile of %d slices", gpuInstance, profile.Slices)
}

// Destroy destroys a GPU instance with its compute instances, which are given by their numbers. The
// driver refuses it while a program uses one of them; those before it are gone then.
func (d Device) Destroy(gpuInstance uint32, computeInstances []uint32) error {
	var gi C.nvml_gi
	if err := d.library.check(fmt.Sprintf("find GPU instance %d", gpuInstance),
		C.library_gi_by_id(&d.library.functions, d.handle, C.uint(gpuInstance), &gi)); err != nil {
		return err
	}
	for _, id := range computeInstances {
		if err := d.library.check(fmt.Sprintf("destroy compute instance %d of GPU instance %d", id, gpuInstance),
			C.library_ci_destroy(&d.library.functions, gi, C.uint(id))); err != nil {
			return err
		}
	}
	return d.library.check(fmt.Sprintf("destroy GPU instance %d", gpuInstance),
		C.library_gi_destroy(&d.library.functions, gi))
}
