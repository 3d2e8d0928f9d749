// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// A stand-in for NVIDIA's libnvidia-ml.so.1. It is built against NVIDIA's own header and answers from machine.h, which
// the test writes: COUNT, MEMORY, the matrices ancestor and nvlink, and LOST, the path of a file that has a byte for each
// GPU: 'x' where it does not answer.
#include <nvml.h>

#include <stdio.h>

#include "machine.h"

// A handle is, as in the header, a struct of one pointer: here to the GPU's place in an array.
static char gpus[COUNT + 1];

static int number(nvmlDevice_t device) { return (int)((char *)device.handle - gpus); }

static int lost(int gpu) {
	char state[COUNT + 1] = "";
	FILE *file = fopen(LOST, "r");
	if (file == NULL)
		return 0;
	size_t length = fread(state, 1, COUNT, file);
	fclose(file);
	return (size_t)gpu < length && state[gpu] == 'x';
}

nvmlReturn_t nvmlInit_v2(void) { return INIT; }

nvmlReturn_t nvmlShutdown(void) { return NVML_SUCCESS; }

const char *nvmlErrorString(nvmlReturn_t result) {
	switch (result) {
	case NVML_ERROR_DRIVER_NOT_LOADED:
		return "Driver Not Loaded";
	case NVML_ERROR_GPU_IS_LOST:
		return "GPU is lost";
	default:
		return "Unknown Error";
	}
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
	*count = COUNT;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
	if (index >= COUNT)
		return NVML_ERROR_INVALID_ARGUMENT;
	device->handle = (struct nvmlDevice_st *)(gpus + index);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length) {
	if (lost(number(device)))
		return NVML_ERROR_GPU_IS_LOST;
	snprintf(uuid, length, "GPU-00000000-0000-0000-0000-%012d", number(device));
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
	if (lost(number(device)))
		return NVML_ERROR_GPU_IS_LOST;
	memory->total = MEMORY;
	memory->free = MEMORY / 2;
	memory->used = MEMORY / 2;
	return NVML_SUCCESS;
}

#ifndef OLD_DRIVER
nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t a, nvmlDevice_t b, nvmlGpuTopologyLevel_t *level) {
	*level = ancestor[number(a)][number(b)];
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t a, nvmlDevice_t b, nvmlGpuP2PCapsIndex_t index, nvmlGpuP2PStatus_t *status) {
	if (index != NVML_P2P_CAPS_INDEX_NVLINK)
		return NVML_ERROR_INVALID_ARGUMENT;
	*status = nvlink[number(a)][number(b)] ? NVML_P2P_STATUS_OK : NVML_P2P_STATUS_NOT_SUPPORTED;
	return NVML_SUCCESS;
}
#endif
