// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

#include "library.h"

#include <stddef.h>

nvml_return library_driver_version(struct library *lib, char *version, unsigned int length) {
	return lib->driver_version ? lib->driver_version(version, length) : NVML_NO_SUCH_FUNCTION;
}

nvml_return library_cuda_version(struct library *lib, int *version) {
	return lib->cuda_version ? lib->cuda_version(version) : NVML_NO_SUCH_FUNCTION;
}

nvml_return library_name(struct library *lib, nvml_device device, char *name, unsigned int length) {
	return lib->name ? lib->name(device, name, length) : NVML_NO_SUCH_FUNCTION;
}

nvml_return library_brand(struct library *lib, nvml_device device, int *brand) {
	return lib->brand ? lib->brand(device, brand) : NVML_NO_SUCH_FUNCTION;
}

nvml_return library_architecture(struct library *lib, nvml_device device, unsigned int *architecture) {
	return lib->architecture ? lib->architecture(device, architecture) : NVML_NO_SUCH_FUNCTION;
}

nvml_return library_compute_capability(struct library *lib, nvml_device device, int *major, int *minor) {
	return lib->compute_capability ? lib->compute_capability(device, major, minor) : NVML_NO_SUCH_FUNCTION;
}

nvml_return library_pci(struct library *lib, nvml_device device, struct nvml_pci *pci) {
	return lib->pci ? lib->pci(device, pci) : NVML_NO_SUCH_FUNCTION;
}
