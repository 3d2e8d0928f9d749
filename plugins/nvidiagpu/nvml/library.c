// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

#include "library.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

char *library_open(struct library *lib, const char *path) {
	memset(lib, 0, sizeof *lib);
	lib->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (lib->handle == NULL)
		return strdup(dlerror());

	const struct {
		const char *name;
		void *slot;
		int optional;
	} functions[] = {
		{"nvmlInit_v2", &lib->init, 0},
		{"nvmlShutdown", &lib->shutdown, 0},
		{"nvmlErrorString", &lib->error_string, 0},
		{"nvmlDeviceGetCount_v2", &lib->count, 0},
		{"nvmlDeviceGetHandleByIndex_v2", &lib->by_index, 0},
		{"nvmlDeviceGetUUID", &lib->uuid, 0},
		{"nvmlDeviceGetMemoryInfo", &lib->memory, 0},
		{"nvmlDeviceGetMemoryInfo_v2", &lib->memory_v2, 1},
		{"nvmlDeviceGetTopologyCommonAncestor", &lib->common_ancestor, 1},
		{"nvmlDeviceGetP2PStatus", &lib->p2p_status, 1},
		{"nvmlEventSetCreate", &lib->event_set, 1},
		{"nvmlDeviceRegisterEvents", &lib->event_register, 1},
		{"nvmlEventSetWait_v2", &lib->event_wait, 1},
		{"nvmlEventSetFree", &lib->event_free, 1},
		{"nvmlDeviceGetRemappedRows", &lib->remapped_rows, 1},
		{"nvmlDeviceGetRetiredPagesPendingStatus", &lib->pages_pending, 1},
		{"nvmlDeviceGetFieldValues", &lib->fields, 1},
		{"nvmlDeviceGetMinorNumber", &lib->minor, 1},
		{"nvmlSystemGetDriverVersion", &lib->driver_version, 1},
		{"nvmlSystemGetCudaDriverVersion_v2", &lib->cuda_version, 1},
		{"nvmlDeviceGetName", &lib->name, 1},
		{"nvmlDeviceGetBrand", &lib->brand, 1},
		{"nvmlDeviceGetArchitecture", &lib->architecture, 1},
		{"nvmlDeviceGetCudaComputeCapability", &lib->compute_capability, 1},
		{"nvmlDeviceGetPciInfo_v3", &lib->pci, 1},
		{"nvmlDeviceGetComputeRunningProcesses_v2", &lib->compute_processes, 1},
		{"nvmlDeviceGetGraphicsRunningProcesses_v2", &lib->graphics_processes, 1},
		{"nvmlDeviceGetProcessUtilization", &lib->process_utilization, 1},
		{"nvmlDeviceGetUtilizationRates", &lib->utilization, 1},
		{"nvmlDeviceGetMigMode", &lib->mig_mode, 1},
		{"nvmlDeviceGetMaxMigDeviceCount", &lib->mig_max, 1},
		{"nvmlDeviceGetMigDeviceHandleByIndex", &lib->mig_by_index, 1},
		{"nvmlDeviceGetGpuInstanceId", &lib->mig_gi, 1},
		{"nvmlDeviceGetComputeInstanceId", &lib->mig_ci, 1},
		{"nvmlDeviceGetAttributes_v2", &lib->mig_attributes, 1},
		{"nvmlDeviceGetGpuInstanceById", &lib->gi_by_id, 1},
		{"nvmlGpuInstanceGetInfo", &lib->gi_info, 1},
		{"nvmlDeviceGetGpuInstances", &lib->gi_list, 1},
		{"nvmlDeviceGetGpuInstanceProfileInfoV", &lib->gi_profile, 1},
		{"nvmlDeviceGetGpuInstancePossiblePlacements_v2", &lib->gi_placements, 1},
		{"nvmlDeviceCreateGpuInstanceWithPlacement", &lib->gi_create, 1},
		{"nvmlGpuInstanceGetComputeInstanceProfileInfo", &lib->ci_profile, 1},
		{"nvmlGpuInstanceCreateComputeInstance", &lib->ci_create, 1},
		{"nvmlGpuInstanceGetComputeInstanceById", &lib->ci_by_id, 1},
		{"nvmlComputeInstanceDestroy", &lib->ci_destroy, 1},
		{"nvmlGpuInstanceDestroy", &lib->gi_destroy, 1},
	};
	for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
		void *symbol = dlsym(lib->handle, functions[i].name);
		if (symbol == NULL && !functions[i].optional) {
			char *error = strdup(dlerror());
			library_close(lib);
			return error;
		}
		memcpy(functions[i].slot, &symbol, sizeof symbol);
	}
	return NULL;
}

void library_close(struct library *lib) {
	dlclose(lib->handle);
	memset(lib, 0, sizeof *lib);
}

nvml_return library_init(struct library *lib) { return lib->init(); }

nvml_return library_shutdown(struct library *lib) { return lib->shutdown(); }

const char *library_error_string(struct library *lib, nvml_return code) { return lib->error_string(code); }

nvml_return library_count(struct library *lib, unsigned int *count) { return lib->count(count); }

nvml_return library_by_index(struct library *lib, unsigned int index, nvml_device *device) {
	return lib->by_index(index, device);
}

nvml_return library_uuid(struct library *lib, nvml_device device, char *uuid, unsigned int length) {
	return lib->uuid(device, uuid, length);
}

// Drivers before 510 do not say what they reserve: there the total is all that is known.
nvml_return library_usable_memory(struct library *lib, nvml_device device, unsigned long long *bytes) {
	struct nvml_memory_v2 v2 = {.version = sizeof v2 | 2 << 24};
	if (lib->memory_v2 != NULL && lib->memory_v2(device, &v2) == NVML_OK && v2.reserved < v2.total) {
		*bytes = v2.total - v2.reserved;
		return NVML_OK;
	}
	struct nvml_memory memory = {0};
	nvml_return code = lib->memory(device, &memory);
	*bytes = memory.total;
	return code;
}

nvml_return library_common_ancestor(struct library *lib, nvml_device a, nvml_device b, int *level) {
	return lib->common_ancestor ? lib->common_ancestor(a, b, level) : NVML_NO_SUCH_FUNCTION;
}

nvml_return library_p2p_status(struct library *lib, nvml_device a, nvml_device b, int capability, int *status) {
	return lib->p2p_status ? lib->p2p_status(a, b, capability, status) : NVML_NO_SUCH_FUNCTION;
}

// A driver without nvmlEventSetWait_v2 reports no events here: there is no set to wait for.
nvml_return library_event_set(struct library *lib, nvml_event_set *set) {
	return lib->event_set && lib->event_register && lib->event_wait && lib->event_free ? lib->event_set(set)
											   : NVML_NO_SUCH_FUNCTION;
}

nvml_return library_event_register(struct library *lib, nvml_device device, unsigned long long types, nvml_event_set set) {
	return lib->event_register(device, types, set);
}

nvml_return library_event_wait(struct library *lib, nvml_event_set set, struct nvml_event *event, unsigned int milliseconds) {
	return lib->event_wait(set, event, milliseconds);
}

nvml_return library_event_free(struct library *lib, nvml_event_set set) { return lib->event_free(set); }

nvml_return library_remap_failed(struct library *lib, nvml_device device, unsigned int *failed) {
	unsigned int correctable, uncorrectable, pending;
	return lib->remapped_rows ? lib->remapped_rows(device, &correctable, &uncorrectable, &pending, failed)
				  : NVML_NO_SUCH_FUNCTION;
}

nvml_return library_pages_pending(struct library *lib, nvml_device device, int *pending) {
	return lib->pages_pending ? lib->pages_pending(device, pending) : NVML_NO_SUCH_FUNCTION;
}

nvml_return library_field(struct library *lib, nvml_device device, unsigned int field, unsigned int *number) {
	struct nvml_field value = {.field = field};
	if (!lib->fields)
		return NVML_NO_SUCH_FUNCTION;
	nvml_return result = lib->fields(device, 1, &value);
	if (result == NVML_OK)
		result = value.result;
	*number = value.value.number;
	return result;
}
