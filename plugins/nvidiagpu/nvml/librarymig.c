// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

#include "library.h"

// The calls for partitioned GPUs. CALL is a call of a function that the driver may lack.
#define CALL(function, ...) ((lib->function) ? (lib->function)(__VA_ARGS__) : NVML_NO_SUCH_FUNCTION)

nvml_return library_minor(struct library *lib, nvml_device device, unsigned int *minor) {
	return CALL(minor, device, minor);
}

nvml_return library_mig_mode(struct library *lib, nvml_device device, unsigned int *current) {
	unsigned int pending;
	return CALL(mig_mode, device, current, &pending);
}

nvml_return library_mig_max(struct library *lib, nvml_device device, unsigned int *count) {
	return CALL(mig_max, device, count);
}

nvml_return library_mig_by_index(struct library *lib, nvml_device device, unsigned int index, nvml_device *mig) {
	return CALL(mig_by_index, device, index, mig);
}

nvml_return library_mig_ids(struct library *lib, nvml_device mig, unsigned int *gi, unsigned int *ci) {
	nvml_return result = CALL(mig_gi, mig, gi);
	return result == NVML_OK ? CALL(mig_ci, mig, ci) : result;
}

nvml_return library_mig_attributes(struct library *lib, nvml_device mig, struct nvml_attributes *attributes) {
	return CALL(mig_attributes, mig, attributes);
}

nvml_return library_gi_by_id(struct library *lib, nvml_device device, unsigned int id, nvml_gi *gi) {
	return CALL(gi_by_id, device, id, gi);
}

nvml_return library_gi_info(struct library *lib, nvml_gi gi, struct nvml_gi_info *info) { return CALL(gi_info, gi, info); }

nvml_return library_gi_list(struct library *lib, nvml_device device, unsigned int profile, nvml_gi *list, unsigned int *count) {
	return CALL(gi_list, device, profile, list, count);
}

// The version is the size of the structure with the number of its layout, 2, above it.
nvml_return library_gi_profile(struct library *lib, nvml_device device, unsigned int index, struct nvml_gi_profile *profile) {
	profile->version = sizeof *profile | 2 << 24;
	return CALL(gi_profile, device, index, profile);
}

nvml_return library_gi_placements(struct library *lib, nvml_device device, unsigned int profile,
				  struct nvml_placement *placements, unsigned int *count) {
	return CALL(gi_placements, device, profile, placements, count);
}

nvml_return library_gi_create(struct library *lib, nvml_device device, unsigned int profile,
			      const struct nvml_placement *placement, nvml_gi *gi) {
	return CALL(gi_create, device, profile, placement, gi);
}

// All engines of a compute instance are shared: 0 is the only kind of engines.
nvml_return library_ci_profile(struct library *lib, nvml_gi gi, unsigned int index, struct nvml_ci_profile *profile) {
	return CALL(ci_profile, gi, index, 0, profile);
}

nvml_return library_ci_create(struct library *lib, nvml_gi gi, unsigned int profile, nvml_ci *ci) {
	return CALL(ci_create, gi, profile, ci);
}

nvml_return library_ci_destroy(struct library *lib, nvml_gi gi, unsigned int id) {
	nvml_ci ci;
	nvml_return result = CALL(ci_by_id, gi, id, &ci);
	return result == NVML_OK ? CALL(ci_destroy, ci) : result;
}

nvml_return library_gi_destroy(struct library *lib, nvml_gi gi) { return CALL(gi_destroy, gi); }
