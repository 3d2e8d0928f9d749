// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// What the parts of the fake share.
#ifndef KUBEDEVICE_FAKE_H
#define KUBEDEVICE_FAKE_H

#include <nvml.h>

// number is that of a GPU.
int number(nvmlDevice_t device);

// mig_uuid writes the UUID of a MIG instance and returns 1, or returns 0 for a GPU.
int mig_uuid(nvmlDevice_t device, char *uuid, unsigned int length);

// used_memory returns how many bytes of a GPU's or an instance's memory processes use.
unsigned long long used_memory(nvmlDevice_t device);

// lost says whether a GPU answers.
int lost(int gpu);

#endif
