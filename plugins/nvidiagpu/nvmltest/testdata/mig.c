// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// The part of the fake that knows MIG. machine.h has PROFILES, the number of profiles, their table profiles, and MIG,
// the path of the file that says how GPUs are partitioned. It has a line for each thing:
//
//	GPU on                  the GPU is in MIG mode
//	GPU gi ID PROFILE START a GPU instance, its profile by its place in the table
//	GPU ci GI ID SLICES     a compute instance
//	GPU used GI             a program uses the GPU instance, which is not there to be destroyed
//
// What creates and destroys instances writes the file again.
#include <stdio.h>
#include <string.h>

#include "machine.h"
#include "fake.h"

#ifdef OLD_DRIVER
int mig_uuid(nvmlDevice_t device, char *uuid, unsigned int length) { return 0; }
#else
enum { GIS = 16, CIS = 8, MAX = 64 };

struct gi {
	int gpu, id, profile, start;
};

struct ci {
	int gpu, gi, id, slices;
};

struct state {
	int on[COUNT + 1], used[(COUNT + 1) * GIS];
	int gis, cis;
	struct gi gi[MAX];
	struct ci ci[MAX];
};

// A handle is the place in one of these arrays.
static char gi_handles[(COUNT + 1) * GIS], ci_handles[(COUNT + 1) * GIS * CIS], mig_handles[(COUNT + 1) * GIS * CIS];

static struct ci *find_ci(struct state *s, int gpu, int gi, int id) {
	for (int i = 0; i < s->cis; i++)
		if (s->ci[i].gpu == gpu && s->ci[i].gi == gi && s->ci[i].id == id)
			return &s->ci[i];
	return NULL;
}

static struct gi *find_gi(struct state *s, int gpu, int id) {
	for (int i = 0; i < s->gis; i++)
		if (s->gi[i].gpu == gpu && s->gi[i].id == id)
			return &s->gi[i];
	return NULL;
}

static struct state load(void) {
	struct state s = {0};
	char line[128];
	FILE *file = fopen(MIG, "r");
	if (file == NULL)
		return s;
	while (fgets(line, sizeof line, file) != NULL) {
		int gpu, a, b, c;
		if (sscanf(line, "%d gi %d %d %d", &gpu, &a, &b, &c) == 4)
			s.gi[s.gis++] = (struct gi){gpu, a, b, c};
		else if (sscanf(line, "%d ci %d %d %d", &gpu, &a, &b, &c) == 4)
			s.ci[s.cis++] = (struct ci){gpu, a, b, c};
		else if (sscanf(line, "%d used %d", &gpu, &a) == 2)
			s.used[gpu * GIS + a] = 1;
		else if (sscanf(line, "%d on", &gpu) == 1)
			s.on[gpu] = 1;
	}
	fclose(file);
	return s;
}

static nvmlReturn_t save(const struct state *s) {
	FILE *file = fopen(MIG ".next", "w");
	if (file == NULL)
		return NVML_ERROR_UNKNOWN;
	for (int gpu = 0; gpu < COUNT; gpu++)
		if (s->on[gpu])
			fprintf(file, "%d on\n", gpu);
	for (int i = 0; i < COUNT * GIS; i++)
		if (s->used[i])
			fprintf(file, "%d used %d\n", i / GIS, i % GIS);
	for (int i = 0; i < s->gis; i++)
		fprintf(file, "%d gi %d %d %d\n", s->gi[i].gpu, s->gi[i].id, s->gi[i].profile, s->gi[i].start);
	for (int i = 0; i < s->cis; i++)
		fprintf(file, "%d ci %d %d %d\n", s->ci[i].gpu, s->ci[i].gi, s->ci[i].id, s->ci[i].slices);
	fclose(file);
	return rename(MIG ".next", MIG) == 0 ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

static int mig_number(nvmlDevice_t device) {
	long at = (char *)device.handle - mig_handles;
	return at >= 0 && at < (long)sizeof mig_handles ? (int)at : -1;
}

int mig_uuid(nvmlDevice_t device, char *uuid, unsigned int length) {
	int at = mig_number(device);
	if (at < 0)
		return 0;
	snprintf(uuid, length, "MIG-00000000-0000-%04d-%04d-%012d", at / CIS % GIS, at % CIS, at / CIS / GIS);
	return 1;
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is) {
	*is = mig_number(device) >= 0;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending) {
	if (PROFILES == 0)
		return NVML_ERROR_NOT_SUPPORTED;
	if (lost(number(device)))
		return NVML_ERROR_GPU_IS_LOST;
	*current = *pending = load().on[number(device)];
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count) {
	*count = PROFILES == 0 ? 0 : 7;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *mig) {
	struct state s = load();
	int gpu = number(device);
	if (lost(gpu))
		return NVML_ERROR_GPU_IS_LOST;
	for (int i = 0; i < s.cis; i++)
		if (s.ci[i].gpu == gpu && index-- == 0) {
			mig->handle = (struct nvmlDevice_st *)(mig_handles + (gpu * GIS + s.ci[i].gi) * CIS + s.ci[i].id);
			return NVML_SUCCESS;
		}
	return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig, nvmlDevice_t *device) {
	int at = mig_number(mig);
	return at < 0 ? NVML_ERROR_INVALID_ARGUMENT : nvmlDeviceGetHandleByIndex_v2(at / CIS / GIS, device);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t mig, unsigned int *id) {
	*id = mig_number(mig) / CIS % GIS;
	return mig_number(mig) < 0 ? NVML_ERROR_INVALID_ARGUMENT : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t mig, unsigned int *id) {
	*id = mig_number(mig) % CIS;
	return mig_number(mig) < 0 ? NVML_ERROR_INVALID_ARGUMENT : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t mig, nvmlDeviceAttributes_t *attributes) {
	struct state s = load();
	int at = mig_number(mig), gpu = at / CIS / GIS;
	if (at < 0)
		return NVML_ERROR_INVALID_ARGUMENT;
	struct gi *gi = find_gi(&s, gpu, at / CIS % GIS);
	struct ci *ci = find_ci(&s, gpu, at / CIS % GIS, at % CIS);
	if (gi == NULL || ci == NULL)
		return NVML_ERROR_NOT_FOUND;
	memset(attributes, 0, sizeof *attributes);
	attributes->gpuInstanceSliceCount = profiles[gi->profile].slices;
	attributes->computeInstanceSliceCount = ci->slices;
	attributes->memorySizeMB = profiles[gi->profile].memory;
	return NVML_SUCCESS;
}

static void gi_handle(int gpu, int id, nvmlGpuInstance_t *handle) {
	handle->handle = (struct nvmlGpuInstance_st *)(gi_handles + gpu * GIS + id);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *handle) {
	struct state s = load();
	if (find_gi(&s, number(device), id) == NULL)
		return NVML_ERROR_NOT_FOUND;
	gi_handle(number(device), id, handle);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t handle, nvmlGpuInstanceInfo_t *info) {
	struct state s = load();
	int at = (int)((char *)handle.handle - gi_handles);
	struct gi *gi = find_gi(&s, at / GIS, at % GIS);
	if (gi == NULL)
		return NVML_ERROR_NOT_FOUND;
	nvmlDeviceGetHandleByIndex_v2(gi->gpu, &info->device);
	info->id = gi->id;
	info->profileId = profiles[gi->profile].id;
	info->placement.start = gi->start;
	info->placement.size = profiles[gi->profile].size;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstances(
	nvmlDevice_t device, unsigned int profile, nvmlGpuInstance_t *list, unsigned int *count) {
	struct state s = load();
	*count = 0;
	for (int i = 0; i < s.gis; i++)
		if (s.gi[i].gpu == number(device) && profiles[s.gi[i].profile].id == profile)
			gi_handle(s.gi[i].gpu, s.gi[i].id, &list[(*count)++]);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(
	nvmlDevice_t device, unsigned int index, nvmlGpuInstanceProfileInfo_v2_t *info) {
	if (index >= NVML_GPU_INSTANCE_PROFILE_COUNT)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (info->version != nvmlGpuInstanceProfileInfo_v2)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	for (int i = 0; i < PROFILES; i++)
		if (profiles[i].index == index) {
			memset(info, 0, sizeof *info);
			info->version = nvmlGpuInstanceProfileInfo_v2;
			info->id = profiles[i].id;
			info->sliceCount = profiles[i].slices;
			info->instanceCount = profiles[i].max;
			info->memorySizeMB = profiles[i].memory;
			snprintf(info->name, sizeof info->name, "MIG %s", profiles[i].name);
			return NVML_SUCCESS;
		}
	return NVML_ERROR_NOT_SUPPORTED;
}

static int by_id(unsigned int id) {
	for (int i = 0; i < PROFILES; i++)
		if (profiles[i].id == id)
			return i;
	return -1;
}

nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(
	nvmlDevice_t device, unsigned int profile, nvmlGpuInstancePlacement_t *placements, unsigned int *count) {
	int at = by_id(profile);
	if (at < 0)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (placements != NULL && *count < (unsigned int)profiles[at].places)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	*count = profiles[at].places;
	for (unsigned int i = 0; placements != NULL && i < *count; i++)
		placements[i] = (nvmlGpuInstancePlacement_t){profiles[at].starts[i], profiles[at].size};
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceCreateGpuInstanceWithPlacement(
	nvmlDevice_t device, unsigned int profile, const nvmlGpuInstancePlacement_t *placement, nvmlGpuInstance_t *handle) {
	struct state s = load();
	int gpu = number(device), at = by_id(profile), same = 0, possible = 0, id = 0;
	if (at < 0 || !s.on[gpu])
		return NVML_ERROR_INVALID_ARGUMENT;
	for (int i = 0; i < profiles[at].places; i++)
		possible |= profiles[at].starts[i] == placement->start && profiles[at].size == placement->size;
	if (!possible)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (int i = 0; i < s.gis; i++) {
		struct gi *other = &s.gi[i];
		if (other->gpu != gpu)
			continue;
		same += other->profile == at;
		if ((unsigned int)other->start < placement->start + placement->size &&
		    placement->start < (unsigned int)other->start + profiles[other->profile].size)
			return NVML_ERROR_INSUFFICIENT_RESOURCES;
	}
	if (same >= profiles[at].max || s.gis == MAX)
		return NVML_ERROR_INSUFFICIENT_RESOURCES;
	while (find_gi(&s, gpu, ++id) != NULL)
		;
	s.gi[s.gis++] = (struct gi){gpu, id, at, placement->start};
	gi_handle(gpu, id, handle);
	return save(&s);
}

static const unsigned int ci_slices[] = {1, 2, 3, 4, 7}; // NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE and on

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(
	nvmlGpuInstance_t handle, unsigned int index, unsigned int engines, nvmlComputeInstanceProfileInfo_t *info) {
	struct state s = load();
	int at = (int)((char *)handle.handle - gi_handles);
	struct gi *gi = find_gi(&s, at / GIS, at % GIS);
	if (gi == NULL)
		return NVML_ERROR_NOT_FOUND;
	if (index >= sizeof ci_slices / sizeof *ci_slices || ci_slices[index] > (unsigned int)profiles[gi->profile].slices)
		return NVML_ERROR_NOT_SUPPORTED;
	memset(info, 0, sizeof *info);
	info->id = index;
	info->sliceCount = ci_slices[index];
	info->instanceCount = profiles[gi->profile].slices / ci_slices[index];
	return NVML_SUCCESS;
}

static void ci_handle(const struct ci *ci, nvmlComputeInstance_t *handle) {
	handle->handle = (struct nvmlComputeInstance_st *)(ci_handles + (ci->gpu * GIS + ci->gi) * CIS + ci->id);
}

nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(
	nvmlGpuInstance_t handle, unsigned int profile, nvmlComputeInstance_t *created) {
	struct state s = load();
	int at = (int)((char *)handle.handle - gi_handles), id = 0, used = 0;
	struct gi *gi = find_gi(&s, at / GIS, at % GIS);
	if (gi == NULL || profile >= sizeof ci_slices / sizeof *ci_slices)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (int i = 0; i < s.cis; i++)
		if (s.ci[i].gpu == gi->gpu && s.ci[i].gi == gi->id)
			used += s.ci[i].slices;
	if (used + ci_slices[profile] > (unsigned int)profiles[gi->profile].slices || s.cis == MAX)
		return NVML_ERROR_INSUFFICIENT_RESOURCES;
	while (find_ci(&s, gi->gpu, gi->id, id) != NULL)
		id++;
	s.ci[s.cis++] = (struct ci){gi->gpu, gi->id, id, ci_slices[profile]};
	ci_handle(&s.ci[s.cis - 1], created);
	return save(&s);
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(
	nvmlGpuInstance_t handle, unsigned int id, nvmlComputeInstance_t *found) {
	struct state s = load();
	int at = (int)((char *)handle.handle - gi_handles);
	struct ci *ci = find_ci(&s, at / GIS, at % GIS, id);
	if (ci == NULL)
		return NVML_ERROR_NOT_FOUND;
	ci_handle(ci, found);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlComputeInstanceDestroy(nvmlComputeInstance_t handle) {
	struct state s = load();
	int at = (int)((char *)handle.handle - ci_handles);
	struct ci *ci = find_ci(&s, at / CIS / GIS, at / CIS % GIS, at % CIS);
	if (ci == NULL)
		return NVML_ERROR_NOT_FOUND;
	if (s.used[at / CIS])
		return NVML_ERROR_IN_USE;
	*ci = s.ci[--s.cis];
	return save(&s);
}

nvmlReturn_t nvmlGpuInstanceDestroy(nvmlGpuInstance_t handle) {
	struct state s = load();
	int at = (int)((char *)handle.handle - gi_handles);
	struct gi *gi = find_gi(&s, at / GIS, at % GIS);
	if (gi == NULL)
		return NVML_ERROR_NOT_FOUND;
	if (s.used[at])
		return NVML_ERROR_IN_USE;
	for (int i = 0; i < s.cis; i++)
		if (s.ci[i].gpu == gi->gpu && s.ci[i].gi == gi->id)
			return NVML_ERROR_IN_USE; // of its compute instances
	*gi = s.gi[--s.gis];
	return save(&s);
}
#endif
