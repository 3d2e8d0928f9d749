// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// The part of the fake that knows how GPUs and MIG instances are used. machine.h has USAGE, the path of a file that has
// a line for each thing:
//
//	UUID compute PID BYTES            a process and its memory, -1 where that is not known
//	UUID graphics PID BYTES           the same, of a process with a context for graphics
//	UUID sample PID TIMESTAMP PERCENT how busy a process kept a GPU
//	UUID busy PERCENT                 how busy a GPU is
#include <stdio.h>
#include <string.h>

#include "machine.h"
#include "fake.h"

// find returns the number of lines of a kind of a device, and calls each with its numbers, which are count.
static int find(nvmlDevice_t device, const char *kind, void (*each)(void *to, const long long *numbers), void *to) {
	char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE], of[NVML_DEVICE_UUID_V2_BUFFER_SIZE], found[16], line[256];
	int lines = 0;
	FILE *file = fopen(USAGE, "r");
	if (file == NULL || nvmlDeviceGetUUID(device, uuid, sizeof uuid) != NVML_SUCCESS) {
		if (file != NULL)
			fclose(file);
		return 0;
	}
	while (fgets(line, sizeof line, file) != NULL) {
		long long numbers[3] = {0};
		if (sscanf(line, "%95s %15s %lld %lld %lld", of, found, numbers, numbers + 1, numbers + 2) < 3 ||
		    strcmp(of, uuid) != 0 || strcmp(found, kind) != 0)
			continue;
		lines++;
		each(to, numbers);
	}
	fclose(file);
	return lines;
}

static void add_memory(void *to, const long long *numbers) {
	if (numbers[1] > 0)
		*(unsigned long long *)to += numbers[1];
}

unsigned long long used_memory(nvmlDevice_t device) {
	unsigned long long sum = 0;
	find(device, "compute", add_memory, &sum);
	find(device, "graphics", add_memory, &sum);
	return sum;
}

#ifndef OLD_DRIVER
// A list that is filled as far as there is room.
struct list {
	void *entries;
	unsigned int room, count;
	unsigned long long since;
};

static nvmlReturn_t filled(const struct list *list, unsigned int *count) {
	*count = list->count;
	return list->count > list->room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

static void add_process(void *to, const long long *numbers) {
	struct list *list = to;
	if (list->count < list->room)
		((nvmlProcessInfo_v2_t *)list->entries)[list->count] = (nvmlProcessInfo_v2_t){
			.pid = numbers[0], .usedGpuMemory = numbers[1], .gpuInstanceId = -1, .computeInstanceId = -1};
	list->count++;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v2_t *infos) {
	struct list list = {infos, *count};
	find(device, "compute", add_process, &list);
	return filled(&list, count);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v2_t *infos) {
	char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE];
	struct list list = {infos, *count};
	if (mig_uuid(device, uuid, sizeof uuid))
		return NVML_ERROR_NOT_SUPPORTED;
	find(device, "graphics", add_process, &list);
	return filled(&list, count);
}

static void add_sample(void *to, const long long *numbers) {
	struct list *list = to;
	if ((unsigned long long)numbers[1] <= list->since)
		return;
	if (list->count < list->room)
		((nvmlProcessUtilizationSample_t *)list->entries)[list->count] =
			(nvmlProcessUtilizationSample_t){.pid = numbers[0], .timeStamp = numbers[1], .smUtil = numbers[2]};
	list->count++;
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(
	nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples, unsigned int *count, unsigned long long since) {
	char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE];
	struct list list = {samples, samples == NULL ? 0 : *count, 0, since};
	if (mig_uuid(device, uuid, sizeof uuid))
		return NVML_ERROR_NOT_SUPPORTED;
	find(device, "sample", add_sample, &list);
	return list.count == 0 ? NVML_ERROR_NOT_FOUND : filled(&list, count);
}

static void set_busy(void *to, const long long *numbers) { ((nvmlUtilization_t *)to)->gpu = numbers[0]; }

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization) {
	return find(device, "busy", set_busy, utilization) == 0 ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}
#endif
