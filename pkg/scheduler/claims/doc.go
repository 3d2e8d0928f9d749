// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package claims is the framework plugin that chooses devices for ResourceClaims, in the place of
// upstream's plugin DynamicResources, where the setting claims is "kubedevice".
//
// # Who does what
//
// We choose; upstream's plugin does all the rest. [Plugin] contains one, and passes on to it each
// extension point that does not choose: PreEnqueue, the queueing hints, Unreserve, PreBind. It
// writes allocations to the API, and it keeps those in flight.
//
//   - PreFilter has upstream's plugin check the pod's claims, without any slice, and compiles them
//     (package allocator).
//   - Filter searches the node's devices (package pool) alone. It computes from what claims hold
//     and from the pods that preemption has removed, so preemption works.
//   - Reserve searches the best devices of the chosen node. It then runs upstream's PreFilter,
//     Filter and Reserve with a state of their own, in which the cluster has only these devices,
//     see view. Their result becomes the result of the pod's cycle.
//
// If upstream's plugin does not accept the choice, it makes its own among all devices: that is
// counted, and the pod gets an event.
//
// # What is left to upstream
//
// What is not modelled is left to upstream's plugin as a whole, and counted by reason: a pod of
// which a claim uses a feature that is not modelled; on a node, a pod for which a device fits in a
// pool with such a feature. See [Reason] and allocator.Reason.
package claims
