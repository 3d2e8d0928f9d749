// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podresources serves the kubelet's PodResources API for all devices of a node, so that exporters and other agents
// see who holds what: they mount the folder of its socket in place of the kubelet's.
//
// # What is said
//
// Every call is one call to the kubelet at its own socket, whose answer is completed. Which pods there are, and which of their
// containers count, is the kubelet's word alone: pods that are not over, with their restartable init containers (sidecars) and
// their containers, but no init containers that end. CPUs, memory, dynamic resources and devices of plugins that register with
// the kubelet stay as they are, and so does what a newer kubelet adds to the API. To each container come the devices that its
// pod was granted on this node, and to the allocatable devices those of this node that are well.
//
// The kubelet knows pods by name here and the record of grants by UID. Of grants to pods of one name, that of the pod which the
// API server has counts; one of a pod that is over or gone never does, although its containers may still be about to end.
//
// While the kubelet does not answer, nobody is told half of the truth: the call is Unavailable, as it is at a kubelet that is
// away. Other errors of the kubelet are passed on, among them that of its rate limit (100 calls a second for all its clients,
// ten at once), which therefore holds for this socket, too.
//
// # Names
//
// A device of a plugin that was written for the kubelet has the resource and the ID that the plugin gave it. A device of a
// plugin file has the extended resource that its plugin publishes, and the ID which is the instance of its lowest level: of
// resource/group/gpugrp0/0/gpu/GPU-7f3a/cards, that is GPU-7f3a, and the device has it once however many of its resources are
// held. Of several extended resources that a plugin publishes, the one counts that is called like the level, such as
// example.com/gpu for gpu; where there is none, the API has no name for the device, and it is left out. NUMA nodes are those
// of the level "numa", if the name has that: see package hosted. As the kubelet does it, each device is an entry of its own,
// and one of two NUMA nodes is two.
package podresources
