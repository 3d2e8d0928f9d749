// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef KUBEDEVICE_NVML_LIBRARY_H
#define KUBEDEVICE_NVML_LIBRARY_H

// The part of NVML's binary interface that is used. It is stable: names with a version suffix keep their meaning.
typedef int nvml_return;
typedef struct nvml_device_opaque *nvml_device;
typedef struct nvml_event_set_opaque *nvml_event_set;
typedef struct nvml_gi_opaque *nvml_gi;
typedef struct nvml_ci_opaque *nvml_ci;

enum {
	NVML_OK = 0,
	NVML_NO_SUCH_FUNCTION = 13,
};

struct nvml_memory {
	unsigned long long total, free, used;
};

// The second version says what the driver reserves for itself, which is part of the total.
struct nvml_memory_v2 {
	unsigned int version;
	unsigned long long total, reserved, free, used;
};

// The second layout, which the second and the third version of the functions share. Memory is all ones where the driver
// does not know it.
struct nvml_process {
	unsigned int pid;
	unsigned long long memory;
	unsigned int gpu_instance, compute_instance;
};

struct nvml_process_sample {
	unsigned int pid;
	unsigned long long timestamp;
	unsigned int multiprocessors, memory, encoder, decoder;
};

struct nvml_utilization {
	unsigned int gpu, memory;
};

// The third version of the function, whose address has eight digits of the domain.
struct nvml_pci {
	char legacy[16];
	unsigned int domain, bus, device, id, subsystem;
	char address[32];
};

struct nvml_event {
	nvml_device device;
	unsigned long long type, data;
	unsigned int gpu_instance, compute_instance;
};

// A union holds the value; all that is read of it here is an unsigned int.
struct nvml_field {
	unsigned int field, scope;
	long long timestamp, latency;
	int type;
	nvml_return result;
	union {
		unsigned int number;
		unsigned long long size;
	} value;
};

// The memory slices that a GPU instance has.
struct nvml_placement {
	unsigned int start, size;
};

struct nvml_gi_info {
	nvml_device device;
	unsigned int id, profile;
	struct nvml_placement placement;
};

struct nvml_gi_profile {
	unsigned int version, id, p2p, slices, instances, multiprocessors, copy, decoders, encoders, jpeg, ofa;
	unsigned long long memory;
	char name[96];
};

struct nvml_ci_profile {
	unsigned int id, slices, instances, multiprocessors, copy, decoders, encoders, jpeg, ofa;
};

struct nvml_attributes {
	unsigned int multiprocessors, copy, decoders, encoders, jpeg, ofa, gi_slices, ci_slices;
	unsigned long long memory;
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
	nvml_return (*memory_v2)(nvml_device, struct nvml_memory_v2 *);
	nvml_return (*common_ancestor)(nvml_device, nvml_device, int *);
	nvml_return (*p2p_status)(nvml_device, nvml_device, int, int *);
	nvml_return (*event_set)(nvml_event_set *);
	nvml_return (*event_register)(nvml_device, unsigned long long, nvml_event_set);
	nvml_return (*event_wait)(nvml_event_set, struct nvml_event *, unsigned int);
	nvml_return (*event_free)(nvml_event_set);
	nvml_return (*remapped_rows)(nvml_device, unsigned int *, unsigned int *, unsigned int *, unsigned int *);
	nvml_return (*pages_pending)(nvml_device, int *);
	nvml_return (*fields)(nvml_device, int, struct nvml_field *);
	nvml_return (*minor)(nvml_device, unsigned int *);
	nvml_return (*driver_version)(char *, unsigned int);
	nvml_return (*cuda_version)(int *);
	nvml_return (*name)(nvml_device, char *, unsigned int);
	nvml_return (*brand)(nvml_device, int *);
	nvml_return (*architecture)(nvml_device, unsigned int *);
	nvml_return (*compute_capability)(nvml_device, int *, int *);
	nvml_return (*pci)(nvml_device, struct nvml_pci *);
	nvml_return (*compute_processes)(nvml_device, unsigned int *, struct nvml_process *);
	nvml_return (*graphics_processes)(nvml_device, unsigned int *, struct nvml_process *);
	nvml_return (*process_utilization)(nvml_device, struct nvml_process_sample *, unsigned int *, unsigned long long);
	nvml_return (*utilization)(nvml_device, struct nvml_utilization *);
	nvml_return (*mig_mode)(nvml_device, unsigned int *, unsigned int *);
	nvml_return (*mig_max)(nvml_device, unsigned int *);
	nvml_return (*mig_by_index)(nvml_device, unsigned int, nvml_device *);
	nvml_return (*mig_gi)(nvml_device, unsigned int *);
	nvml_return (*mig_ci)(nvml_device, unsigned int *);
	nvml_return (*mig_attributes)(nvml_device, struct nvml_attributes *);
	nvml_return (*gi_by_id)(nvml_device, unsigned int, nvml_gi *);
	nvml_return (*gi_info)(nvml_gi, struct nvml_gi_info *);
	nvml_return (*gi_list)(nvml_device, unsigned int, nvml_gi *, unsigned int *);
	nvml_return (*gi_profile)(nvml_device, unsigned int, struct nvml_gi_profile *);
	nvml_return (*gi_placements)(nvml_device, unsigned int, struct nvml_placement *, unsigned int *);
	nvml_return (*gi_create)(nvml_device, unsigned int, const struct nvml_placement *, nvml_gi *);
	nvml_return (*ci_profile)(nvml_gi, unsigned int, unsigned int, struct nvml_ci_profile *);
	nvml_return (*ci_create)(nvml_gi, unsigned int, nvml_ci *);
	nvml_return (*ci_by_id)(nvml_gi, unsigned int, nvml_ci *);
	nvml_return (*ci_destroy)(nvml_ci);
	nvml_return (*gi_destroy)(nvml_gi);
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
nvml_return library_usable_memory(struct library *lib, nvml_device device, unsigned long long *bytes);
nvml_return library_common_ancestor(struct library *lib, nvml_device a, nvml_device b, int *level);
nvml_return library_p2p_status(struct library *lib, nvml_device a, nvml_device b, int capability, int *status);
nvml_return library_event_set(struct library *lib, nvml_event_set *set);
nvml_return library_event_register(struct library *lib, nvml_device device, unsigned long long types, nvml_event_set set);
nvml_return library_event_wait(struct library *lib, nvml_event_set set, struct nvml_event *event, unsigned int milliseconds);
nvml_return library_event_free(struct library *lib, nvml_event_set set);

// The states of a GPU, each as one number.
nvml_return library_remap_failed(struct library *lib, nvml_device device, unsigned int *failed);
nvml_return library_pages_pending(struct library *lib, nvml_device device, int *pending);
nvml_return library_field(struct library *lib, nvml_device device, unsigned int field, unsigned int *number);

nvml_return library_minor(struct library *lib, nvml_device device, unsigned int *minor);

// What describes a GPU and its driver. What an older driver has no function for is NVML_NO_SUCH_FUNCTION.
nvml_return library_driver_version(struct library *lib, char *version, unsigned int length);
nvml_return library_cuda_version(struct library *lib, int *version);
nvml_return library_name(struct library *lib, nvml_device device, char *name, unsigned int length);
nvml_return library_brand(struct library *lib, nvml_device device, int *brand);
nvml_return library_architecture(struct library *lib, nvml_device device, unsigned int *architecture);
nvml_return library_compute_capability(struct library *lib, nvml_device device, int *major, int *minor);
nvml_return library_pci(struct library *lib, nvml_device device, struct nvml_pci *pci);

// How a GPU or an instance is used. What an older driver has no function for is NVML_NO_SUCH_FUNCTION. count is how many
// entries the list has room for, and then how many there are, or are needed where the room is too small.
nvml_return library_used_memory(struct library *lib, nvml_device device, unsigned long long *usable, unsigned long long *used);
nvml_return library_compute_processes(struct library *lib, nvml_device device, unsigned int *count, struct nvml_process *list);
nvml_return library_graphics_processes(struct library *lib, nvml_device device, unsigned int *count, struct nvml_process *list);
nvml_return library_process_utilization(struct library *lib, nvml_device device, unsigned int *count,
					struct nvml_process_sample *list, unsigned long long since);
nvml_return library_utilization(struct library *lib, nvml_device device, struct nvml_utilization *utilization);

// Partitioned GPUs. What an older driver has no function for is NVML_NO_SUCH_FUNCTION.
nvml_return library_mig_mode(struct library *lib, nvml_device device, unsigned int *current);
nvml_return library_mig_max(struct library *lib, nvml_device device, unsigned int *count);
nvml_return library_mig_by_index(struct library *lib, nvml_device device, unsigned int index, nvml_device *mig);
nvml_return library_mig_ids(struct library *lib, nvml_device mig, unsigned int *gi, unsigned int *ci);
nvml_return library_mig_attributes(struct library *lib, nvml_device mig, struct nvml_attributes *attributes);
nvml_return library_gi_by_id(struct library *lib, nvml_device device, unsigned int id, nvml_gi *gi);
nvml_return library_gi_info(struct library *lib, nvml_gi gi, struct nvml_gi_info *info);
nvml_return library_gi_list(struct library *lib, nvml_device device, unsigned int profile, nvml_gi *list, unsigned int *count);
nvml_return library_gi_profile(struct library *lib, nvml_device device, unsigned int index, struct nvml_gi_profile *profile);
nvml_return library_gi_placements(struct library *lib, nvml_device device, unsigned int profile,
				  struct nvml_placement *placements, unsigned int *count);
nvml_return library_gi_create(struct library *lib, nvml_device device, unsigned int profile,
			      const struct nvml_placement *placement, nvml_gi *gi);
nvml_return library_ci_profile(struct library *lib, nvml_gi gi, unsigned int index, struct nvml_ci_profile *profile);
nvml_return library_ci_create(struct library *lib, nvml_gi gi, unsigned int profile, nvml_ci *ci);
nvml_return library_ci_destroy(struct library *lib, nvml_gi gi, unsigned int id);
nvml_return library_gi_destroy(struct library *lib, nvml_gi gi);

#endif
