// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef KUBEDEVICE_NVML_LIBRARY_H
#define KUBEDEVICE_NVML_LIBRARY_H

// The part of NVML's binary interface that is used. It is stable: names with a version suffix keep their meaning.
typedef int nvml_return;
typedef struct nvml_device_opaque *nvml_device;

enum {
	NVML_OK = 0,
	NVML_NO_SUCH_FUNCTION = 13,
};

struct nvml_memory {
	unsigned long long total, free, used;
};

// library is the functions of one NVML. Those that old drivers lack may be null.
struct library {
	void *handle;
	nvml_return (*init)(void);
	nvml_return (*shutdown)(void);
	const char *(*error_string)(nvml_return);
	nvml_return (*count)(unsigned int *);
	nvml_return (*by_index)(unsigned int, nvml_device *);
	nvml_return (*uuid)(nvml_device, char *, unsigned int);
	nvml_return (*memory)(nvml_device, struct nvml_memory *);
	nvml_return (*common_ancestor)(nvml_device, nvml_device, int *);
	nvml_return (*p2p_status)(nvml_device, nvml_device, int, int *);
};

// library_open fills in lib and returns null, or returns what is wrong, in memory that the caller frees.
char *library_open(struct library *lib, const char *path);

// library_close gives back the handle.
void library_close(struct library *lib);

// Go cannot call a function pointer: these do.
nvml_return library_init(struct library *lib);
nvml_return library_shutdown(struct library *lib);
const char *library_error_string(struct library *lib, nvml_return code);
nvml_return library_count(struct library *lib, unsigned int *count);
nvml_return library_by_index(struct library *lib, unsigned int index, nvml_device *device);
nvml_return library_uuid(struct library *lib, nvml_device device, char *uuid, unsigned int length);
nvml_return library_memory(struct library *lib, nvml_device device, struct nvml_memory *memory);
nvml_return library_common_ancestor(struct library *lib, nvml_device a, nvml_device b, int *level);
nvml_return library_p2p_status(struct library *lib, nvml_device a, nvml_device b, int capability, int *status);

#endif
