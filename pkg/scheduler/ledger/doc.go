// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ledger joins the two names of a device that a DRA driver publishes in a ResourceSlice and
// that KubeDevice has in the inventory of the same node, so that it is allocated once.
//
// The rule: such a device is KubeDevice's, as its nodes give it to no claim either. Claims do not
// get it. A claim that has it already keeps it, and until the claim is deallocated pods that
// request devices in other ways do not get it. So no pod that runs loses a device when a node moves
// from one way to the other.
//
// # When two names are of one device
//
// Both sides say what identifies a device: its UUID, that of the device that it is part of, and its
// PCI address. Two names are of one device if they are of one node and have one of these in common.
// So a GPU and its MIG instances are one device here. A device that neither attributes nor its ID
// identify has one name.
//
// # What is kept
//
// All is computed from ResourceSlices, nodes, pods and claims, with two exceptions, which a restart
// forgets: what identified a device that a claim has and that its driver publishes no longer; and
// what attributes identified one that a pod has and that its node lists no longer. Drain a node
// before its driver is removed.
package ledger
