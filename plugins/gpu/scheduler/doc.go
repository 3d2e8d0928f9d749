// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scheduler is the scheduler side of the GPU plugins: it turns what a pod says about GPUs
// into requests that the group scheduler places.
//
// A container says how many GPUs it needs (nvidia.com/gpu in its limits), or writes down what it
// needs in its annotation (gpugrp0/A/gpu/a/cards: 1, gpugrp0/A/gpu/b/cards: 1 for two GPUs in one
// close group; gpu/a/memory for a share of one), or both. What it wrote itself is kept as it is;
// the count adds GPUs when it is larger than the number of GPUs that were written. A container gets
// at least as many different GPUs as it counts: see spread.go.
//
// The GPUs of a container that only counts are placed by topology: see shape.go.
package scheduler
