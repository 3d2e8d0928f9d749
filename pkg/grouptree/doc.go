// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package grouptree is the group scheduler: it decides whether the device requests of a pod fit a
// node, how well, and which of the node's devices serve them.
//
// # Trees
//
// A device resource is a path, resource/group/<level>/<instance>/…/<resource>. The resources of a
// node form a tree of instances; the requests of one container form a tree of placeholders. A
// placeholder is put on one instance of the same level, below the instance that its parent was put
// on, such that its own requests and all below it fit there. Nothing forbids two placeholders on
// one instance when the quantities allow it: that is how devices are shared.
//
// # Use
//
// What changes seldom is compiled once: a [DeviceTree] from a node's allocatable devices, a
// [Request] from a pod. What is used on a node is a dense vector, one number for each resource of
// the tree. A [Placer] then answers with a [Placement]. Callers can cache it: unless the request is
// pinned, it depends on nothing but the shape of the tree, the vector and the digest of the
// request. [Explain] says, when asked, why a pod does not fit. [Holdings] computes from a bound pod
// what it holds.
//
// # The canonical walk
//
// Containers are placed one after another, running ones in name order, then init containers in name
// order. Within a group come its own requests, then its sub-levels by name, then the placeholders
// of a level by name, depth first. For a placeholder each instance of its level is tried. Instances
// that hold an allocation of this pod are preferred; among them, or among all when none of them
// fits, the highest score wins, and of equal scores the later name. A placeholder that was placed
// stays where it is.
//
// The score of an instance is the mean over all resources below it, in name order. A pod's score is
// that of the whole node after its last running container. A resource is scored by its scorer:
// left-over is the part of it that is used after the placement, enum the part of its bits that the
// pod asks for.
//
// # The exact search
//
// Where the walk fails, an exact search goes through all placements. It returns the one with the
// highest score, scores that differ by less than about 1e-9 being equal, and of equal ones that
// which gives the first placeholder (in the walk's order) at which they differ the later name. It
// counts the instances that it tries and stops at the placer's step limit: the placement then says
// so, and "fits" is true only when a placement was found.
//
// # Quantities
//
// All quantities are int64 in base units: devices, bytes, or a bit mask for a resource whose last
// segment begins with "enum" (or that the node gives the enum scorer). Masks are matched, not
// consumed: they never count as used.
package grouptree
