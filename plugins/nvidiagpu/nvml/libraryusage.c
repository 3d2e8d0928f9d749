// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

#include "library.h"

#include <stddef.h>

// Drivers before 510 count what they reserve as used, and do not say how much that is.
nvml_return library_used_memory(struct library *lib, nvml_device device, unsigned long long *usable, unsigned long long *used) {
	struct nvml_memory_v2 v2 = {.version = sizeof v2 | 2 << 24};
	if (lib->memory_v2 != NULL && lib->memory_v2(device, &v2) == NVML_OK && v2.reserved < v2.total) {
		*usable = v2.total - v2.reserved;
		*used = v2.used;
		return NVML_OK;
	}
	struct nvml_memory memory = {0};
	nvml_return code = lib->memory(device, &memory);
	*usable = memory.total;
	*used = memory.used;
	return code;
}

nvml_return library_compute_processes(struct library *lib, nvml_device device, unsigned int *count, struct nvml_process *list) {
	return lib->compute_processes ? lib->compute_processes(device, count, list) : NVML_NO_SUCH_FUNCTION;
}

nvml_return library_graphics_processes(struct library *lib, nvml_device device, unsigned int *count, struct nvml_process *list) {
	return lib->graphics_processes ? lib->graphics_processes(device, count, list) : NVML_NO_SUCH_FUNCTION;
}

nvml_return library_process_utilization(struct library *lib, nvml_device device, unsigned int *count,
					struct nvml_process_sample *list, unsigned long long since) {
	return lib->process_utilization ? lib->process_utilization(device, list, count, since) : NVML_NO_SUCH_FUNCTION;
}

nvml_return library_utilization(struct library *lib, nvml_device device, struct nvml_utilization *utilization) {
	return lib->utilization ? lib->utilization(device, utilization) : NVML_NO_SUCH_FUNCTION;
}
