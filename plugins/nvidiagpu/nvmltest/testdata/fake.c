// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// A fake of NVIDIA's libnvidia-ml.so.1. It is built against NVIDIA's own header and answers from machine.h, which
// the test writes: COUNT, MEMORY, RESERVED, BUS, the matrices ancestor and nvlink, LOST, the path of a file that has a byte
// for each GPU: 'x' where it does not answer, EVENTS, the path of a file that has a line for each critical error: GPU and XID, and
// HEALTH, the path of a file that has a line for each GPU: whether a row could not be remapped, whether pages are pending
// retirement, and the recovery action, all 0 for a file that is not there. A critical error may have the numbers of a GPU
// instance and a compute instance behind it. mig.c and usage.c have the rest.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "machine.h"
#include "fake.h"

// A handle is, as in the header, a struct of one pointer: here to the GPU's place in an array.
static char gpus[COUNT + 1];

int number(nvmlDevice_t device) { return (int)((char *)device.handle - gpus); }

int lost(int gpu) {
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
	case NVML_ERROR_NOT_SUPPORTED:
		return "Not Supported";
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
	if (mig_uuid(device, uuid, length))
		return NVML_SUCCESS;
	if (lost(number(device)))
		return NVML_ERROR_GPU_IS_LOST;
	snprintf(uuid, length, "GPU-00000000-0000-0000-0000-%012d", number(device));
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
	for (unsigned int gpu = 0; gpu < COUNT; gpu++) {
		char own[NVML_DEVICE_UUID_BUFFER_SIZE];
		nvmlDeviceGetHandleByIndex_v2(gpu, device);
		if (nvmlDeviceGetUUID(*device, own, sizeof own) == NVML_SUCCESS && strcmp(own, uuid) == 0)
			return NVML_SUCCESS;
	}
	return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length) {
	snprintf(name, length, "%s", NAME);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor) {
	*minor = number(device);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
	*major = 9;
	*minor = 0;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
	memset(pci, 0, sizeof *pci);
	pci->bus = BUS + number(device);
	snprintf(pci->busId, sizeof pci->busId, "00000000:%02X:00.0", pci->bus);
	snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "0000:%02X:00.0", pci->bus);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length) {
	snprintf(version, length, "580.159.04");
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, nvmlEnableState_t *active) {
	return NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *pci) {
	return NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types) {
	*types = nvmlEventTypeXidCriticalError;
	return NVML_SUCCESS;
}

// A set of events is how far its owner has read in the file, and which GPUs are in it. It has the events of all GPUs.
struct set {
	long at;
	char in[COUNT + 1];
};

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
	set->handle = calloc(1, sizeof(struct set));
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set) {
	((struct set *)set.handle)->in[number(device)] = 1;
	return NVML_SUCCESS;
}

static int next(long *at, unsigned int *gpu, nvmlEventData_t *data) {
	char line[128];
	FILE *file = fopen(EVENTS, "r");
	if (file == NULL) {
		*at = 0;
		return 0;
	}
	fseek(file, *at, SEEK_SET);
	int read = fgets(line, sizeof line, file) != NULL && strchr(line, '\n') != NULL;
	if (read)
		*at = ftell(file);
	fclose(file);
	data->gpuInstanceId = data->computeInstanceId = 0xffffffff;
	return read &&
	       sscanf(line, "%u %llu %u %u", gpu, &data->eventData, &data->gpuInstanceId, &data->computeInstanceId) >= 2;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int milliseconds) {
	const struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};
	struct set *own = (struct set *)set.handle;
	for (int gpu = 0; gpu < COUNT; gpu++)
		if (own->in[gpu] && lost(gpu))
			return NVML_ERROR_GPU_IS_LOST;
	for (unsigned int waited = 0; waited <= milliseconds; waited += 20) {
		unsigned int gpu;
		if (next(&own->at, &gpu, data)) {
			data->eventType = nvmlEventTypeXidCriticalError;
			return nvmlDeviceGetHandleByIndex_v2(gpu, &data->device);
		}
		if (milliseconds > 0)
			nanosleep(&pause, NULL);
	}
	return NVML_ERROR_TIMEOUT;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
	free(set.handle);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
	if (lost(number(device)))
		return NVML_ERROR_GPU_IS_LOST;
	memory->total = MEMORY + RESERVED;
	memory->free = MEMORY - used_memory(device);
	memory->used = used_memory(device) + RESERVED;
	return NVML_SUCCESS;
}

#ifndef OLD_DRIVER
nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
	*version = 13000;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, nvmlBrandType_t *brand) {
	*brand = NVML_BRAND_NVIDIA;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, nvmlDeviceArchitecture_t *architecture) {
	*architecture = NVML_DEVICE_ARCH_HOPPER;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
	if (memory->version != nvmlMemory_v2)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (lost(number(device)))
		return NVML_ERROR_GPU_IS_LOST;
	memory->total = MEMORY + RESERVED;
	memory->reserved = RESERVED;
	memory->used = used_memory(device);
	memory->free = MEMORY - memory->used;
	return NVML_SUCCESS;
}

struct health {
	unsigned int remap_failed, pages_pending, action;
};

static struct health health(int gpu) {
	struct health state = {0};
	FILE *file = fopen(HEALTH, "r");
	if (file == NULL)
		return state;
	for (int line = 0; line <= gpu; line++)
		if (fscanf(file, "%u %u %u", &state.remap_failed, &state.pages_pending, &state.action) != 3)
			state = (struct health){0};
	fclose(file);
	return state;
}

nvmlReturn_t nvmlDeviceGetRemappedRows(
	nvmlDevice_t device, unsigned int *correctable, unsigned int *uncorrectable, unsigned int *pending, unsigned int *failed) {
	if (lost(number(device)))
		return NVML_ERROR_GPU_IS_LOST;
	*correctable = *uncorrectable = *pending = 0;
	*failed = health(number(device)).remap_failed;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t device, nvmlEnableState_t *pending) {
	if (lost(number(device)))
		return NVML_ERROR_GPU_IS_LOST;
	*pending = health(number(device)).pages_pending;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values) {
	if (lost(number(device)))
		return NVML_ERROR_GPU_IS_LOST;
	for (int i = 0; i < count; i++) {
		values[i].nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
		if (values[i].fieldId == NVML_FI_DEV_GET_GPU_RECOVERY_ACTION) {
			values[i].nvmlReturn = NVML_SUCCESS;
			values[i].valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
			values[i].value.uiVal = health(number(device)).action;
		}
	}
	return NVML_SUCCESS;
}

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
