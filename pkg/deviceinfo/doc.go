// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package deviceinfo reads and writes the annotation KubeDevice/DeviceInfo. It is the only place
// that knows its JSON.
//
// On a node the annotation holds what the node has; on a pod, what the pod requests and, once the
// pod is bound, what it is allocated. Users write a pod's requests and scorer. The fields
// devrequests, allocatefrom and nodename belong to the scheduler: [PodRequest] discards what a user
// wrote there, and [PodAllocation] reads them only from a pod that is bound to the node which they
// name.
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
// used and scorer, in which null means absent and absent entries at the end are left out; one
// number instead of the list is capacity and allocatable alike. A reader that knows the published
// form alone sees a node without devices, and allocates none.
//
// # Strictness
//
// The admission policies that guard the scheduler's fields cannot parse JSON: they search the text
// for words. So that no value which they accept can decode to an allocation, decoding is at least
// as strict as they are: keys match in exact case only, a key that occurs twice is an error, and
// each error names the field. Unknown fields are ignored, so that releases can add some.
//
// All functions are safe for concurrent use.
package deviceinfo

// Annotation is the key of the annotation, on nodes and on pods.
const Annotation = "KubeDevice/DeviceInfo"

// MaxBytes is the largest value that is read or written. Kubernetes allows all annotations of an
// object together that much.
const MaxBytes = 256 << 10

// MaxNameBytes is the longest name of a resource, a container, a pod or a node.
const MaxNameBytes = 1024
