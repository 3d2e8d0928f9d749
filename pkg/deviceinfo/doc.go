// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package deviceinfo reads and writes the annotation KubeDevice/DeviceInfo. It is the only place
// that knows its JSON.
//
// On a node the annotation contains the node's inventory; on a pod, the pod's requests and, once
// the pod is bound, its allocation. Users write a pod's requests and scorer. The fields
// devrequests, allocatefrom and nodename belong to the scheduler: [PodRequest] discards a user's
// values in them, and [PodAllocation] reads them only from a pod that is bound to the node which
// they name.
//
// A request is a whole number in base units, or a string with a quantity in the notation of
// Kubernetes: 21474836480 and "20Gi" are the same. All that programs write is whole numbers.
//
// # Large nodes
//
// In the published form of a node's annotation each of its lists names each resource in full, which
// fits some 600 GPUs. From 128 KiB on, [EncodeNode] writes the compact form, which fits 2,900 of
// them:
//
//	{"name":"n1","tree":{"nvidia.com/gpu":2,
//	  "resource/group/gpugrp0":{"0/gpu":{"GPU-a":{"cards":1,"memory":85899345920}}, …
//
// The keys from the tree to a value, joined by slashes, are the name of a resource; an empty key
// adds nothing to the name above it. The value is a list of the resource's capacity, allocatable,
// used and scorer. In the list, null means absent, and absent entries at the end are omitted. One
// number instead of the list is both capacity and allocatable. A reader that knows only the
// published form sees a node without devices, and allocates none.
//
// # Strictness
//
// The admission policies that protect the scheduler's fields cannot parse JSON: they search the
// text for the names of the fields. Decoding is at least as strict as the policies, so that no
// accepted value can decode to an allocation: keys match in exact case only, a duplicate key is an
// error, and each error names the field. Decoding ignores unknown fields, so that later releases
// can add fields.
//
// All functions are safe for concurrent use.
package deviceinfo

// Annotation is the key of the annotation, on nodes and on pods.
const Annotation = "KubeDevice/DeviceInfo"

// MaxBytes is the largest value of the annotation. Kubernetes allows this size for all annotations
// of an object together.
const MaxBytes = 256 << 10

// MaxNameBytes is the longest name of a resource, a container, a pod or a node.
const MaxNameBytes = 1024
