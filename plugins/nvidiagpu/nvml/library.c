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
		{"nvmlDeviceGetTopologyCommonAncestor", &lib->common_ancestor, 1},
		{"nvmlDeviceGetP2PStatus", &lib->p2p_status, 1},
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

nvml_return library_memory(struct library *lib, nvml_device device, struct nvml_memory *memory) {
	return lib->memory(device, memory);
}

nvml_return library_common_ancestor(struct library *lib, nvml_device a, nvml_device b, int *level) {
	return lib->common_ancestor ? lib->common_ancestor(a, b, level) : NVML_NO_SUCH_FUNCTION;
}

nvml_return library_p2p_status(struct library *lib, nvml_device a, nvml_device b, int capability, int *status) {
	return lib->p2p_status ? lib->p2p_status(a, b, capability, status) : NVML_NO_SUCH_FUNCTION;
}
