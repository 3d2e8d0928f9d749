// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pool reads ResourceSlices as the inventory of nodes: which devices of which pools a pod
// on a node may get, before anything is allocated.
//
// The rules are those of upstream's allocator (k8s.io/dynamic-resource-allocation/structured,
// GatherPools), so that both see the same devices in the same order: only slices of the pool's
// newest generation count; a pool of which slices are missing, or which has a device twice, serves
// no device; slices and devices say by node name, node selector or "all nodes" where they are.
//
// A pool with features that package allocator does not model says so: see [Pool.NotModelled].
package pool
