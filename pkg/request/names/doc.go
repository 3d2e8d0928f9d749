// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package names compiles the names by which pods request parts of GPUs under HAMi and KAI to the
// requests of the annotation KubeDevice/DeviceInfo, so that such pods run unchanged: extended
// resources such as nvidia.com/gpumem, and annotations such as gpu-fraction. Each form becomes the
// request that means the same, or an [Error] that says what is not supported and what to write.
// Nothing is dropped silently; docs/use/hami-and-kai.md lists every form.
//
// The meaning of the names is that of the documents of HAMi (docs/config.md) and of KAI Scheduler
// (docs/gpu-sharing) and kai-gpu-fractioning (README). All functions are pure and safe for
// concurrent use.
package names
