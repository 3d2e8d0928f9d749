// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package grouptree is the group scheduler: it decides whether the device requests of a pod fit a
// node, how well, and which of the node's devices serve them.
//
// # Trees
//
// A device resource is a path, resource/group/<level>/<instance>/…/<resource>. The resources of a
// node form a tree of instances; the requests of one container form a tree of placeholders. A
// placeholder goes to one instance of the same level, below the instance of its parent, such that
// its own requests and all below it fit there. Two placeholders may share one instance if the
// quantities allow it: that is how containers share devices. Placeholders of one container that
// begin with [Different] share none.
//
// # Use
//
// The caller compiles a [DeviceTree] from a node's allocatable devices and a [Request] from a pod,
// once per change. The used quantities of a node are a dense vector, one number for each resource
// of the tree. A [Placer] then returns a [Placement]. Callers can cache it: unless the request is
// pinned, it depends only on the shape of the tree, the vector and the digest of the request.
// [Explain] says why a pod does not fit. [Holdings] computes the devices that a bound pod holds.
//
// # The canonical walk
//
// Containers are placed one after another, running ones in name order, then init containers in name
// order. Within a group come its own requests, then its sub-levels by name, then the placeholders
// of a level by name, depth first. The walk tries each instance of a placeholder's level. It
// prefers instances that hold an allocation of this pod; among them, or among all when none of them
// fits, the highest score wins, and of equal scores the later name. The walk does not move a placed
// placeholder.
//
// The score of an instance is the mean over all resources below it, in name order. A pod's score is
// that of the whole node after its last running container. A resource is scored by its scorer:
// left-over is the part of it that is used after the placement, enum the part of its bits that the
// pod requests. A resource named cores, the percent of a device's compute time, is left out for a
// pod that requests none: devices need not be requested with it.
//
// # The exact search
//
// If the walk fails, an exact search tries all placements. It returns the one with the highest
// score. Scores that differ by less than about 1e-9 are equal; of equal placements it returns the
// one that gives the later name to the first placeholder (in the walk's order) in which they
// differ. The search counts the instances that it tries and stops at the placer's step limit: the
// placement then reports that, and "fits" is true only if the search found a placement.
//
// # What Kubernetes counts
//
// Running containers are placed before init containers, which then share their devices as far as
// their own requests allow. Kubernetes counts for a pod the most devices that are in use at any
// time: an init container with the sidecars before it, or all that runs afterwards. If the pod
// would hold more whole devices than that, an exact search looks for placements by which it does
// not, and the placement reports if there are none. Whole devices are resources of which no device
// of the node has more than one. A spec that does not name the init containers has no such count.
//
// # Quantities
//
// All quantities are int64 in base units: devices, bytes, or a bit mask for a resource whose last
// segment begins with "enum" (or that the node gives the enum scorer). Masks are matched, not
// consumed: they never count as used.
package grouptree
