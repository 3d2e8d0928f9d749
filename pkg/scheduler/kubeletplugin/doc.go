// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubeletplugin is the device scheduler for the devices of the kubelet's own device plugins, which nodes host: see the
// package of the same name that has the names of these devices. It is built in.
//
// # What pods ask for
//
// A container that has a hosted resource in its limits, such as intel.com/qat: 2, gets so many devices. They come from as
// few NUMA nodes as can be, together with those of the container's other hosted resources.
//
// The requests of its annotation say more, each for one or some of the devices that the limits count:
//
//	numa/A/nvidia.com:gpu: 2                           two GPUs on one NUMA node, which is called A here
//	numa/A/vendor.example:nic: 1                       a NIC on the same one
//	numa/A/vendor.example:nic/0/device: 1              the same, as a name of one device
//	numa/B/intel.com:qat/=0000:3d:01.0/device: 1       this device
//	numa/B/intel.com:qat/=0000:3d:02.0/device: 0       not this device
//	numa/=1/intel.com:qat: 1                           a device of NUMA node 1
//
// Each may have resource/group in front. A and B are placeholders: within one container, what has the same placeholder comes
// from the same NUMA node. Requests must be met: a pod waits until they can be. A device of several NUMA nodes is on one
// with devices of just the same nodes. Of a device whose plugin tells no NUMA node nobody knows what it is together with:
// it serves counts, and placeholders that one device alone has. What a pod or any of its containers wants not to have, none
// of its containers gets.
//
// # Who serves what
//
// A resource is hosted on the nodes that have devices of it by the names of hosted devices. Elsewhere it is some plugin's
// business. A count that is served here is seen by no plugin that comes later: so nvidia.com/gpu may be hosted on one node and
// a plugin's on another.
//
// # How devices are chosen
//
// The devices are chosen here, from what is free, and pinned: the group scheduler checks the choice and accounts for it, for
// init containers and sidecars as for all devices. Devices by ID come first, then placeholders, then counts. Placeholders are
// met in a search through all ways to meet them. Where sidecars are left without a device then, because others have what they
// could have, it is a search through all ways for both. A search says so when it gives up.
//
// Of the NUMA nodes that will do, that is taken which has the fewest devices left over, so that large free groups stay whole;
// nodes are scored by the same measure.
package kubeletplugin
