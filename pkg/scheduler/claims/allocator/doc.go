// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package allocator chooses devices for all claims of a pod jointly, on one node.
//
// [Compile] turns claims into a [Request]; [Request.Allocate] finds an allocation, or that there is
// none, and [Request.Improve] finds the best one.
//
// # The same as upstream
//
// Upstream's allocator tries claims, requests, alternatives of firstAvailable and devices in order,
// and takes the first allocation that it finds. [Request.Allocate] goes through the same in the
// same order, so it finds the same allocation, and none where upstream finds none. It leaves out
// only what cannot succeed: a device for which one that is the same in all that matters has failed.
//
// What is not modelled is an error, [ErrNotModelled], and so is everything for which upstream
// returns an error, and a search that takes too many steps: then upstream's allocator decides.
//
// # Better than upstream
//
// [Request.Improve] keeps the alternatives of that allocation, and searches all others with these
// alternatives for the one of least [Cost]: first that the devices of one request are close to each
// other, then all devices of the pod, then that groups of close devices stay whole. It begins with
// upstream's own, so the result is never worse.
//
// How close devices are follows from their attributes. A level is an attribute; devices that have
// one value of it are in one group. Levels are partitions by value and need not nest. A driver that
// publishes no such attribute says nothing of how its devices are connected.
package allocator
