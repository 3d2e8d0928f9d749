// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubeletdevice is the contract between the two halves that serve the kubelet's own device
// plugins: how a device that such a plugin lists is named as a resource of its node, and how a
// pod's request for one is.
//
// # Names
//
// A device is one resource of quantity 1:
//
//	resource/group/numa/<nodes>/<resource>/<id>/device
//
//	resource/group/numa/0/intel.com:qat/0000:3d:01.0/device
//	resource/group/numa/0-1/vendor.example:nic/eth0%2F1/device
//	resource/group/numa/none/nvidia.com:gpu/GPU-7f3a::2/device
//
// All devices of a node stand in one tree, whichever plugins they come from, so that a GPU and a
// NIC on one NUMA node are two requests with one placeholder at the level numa.
//
//   - <nodes> are the NUMA nodes that the device belongs to, in ascending order and joined by "-"; "none" for a device whose
//     plugin tells no topology. They are instances like any others: a device of nodes 0 and 1 is together with devices of
//     just these two, not with those of node 0, and devices of "none" are together with each other.
//   - <resource> is the extended resource that the plugin registered, with ":" in place of "/": no resource has a colon.
//   - <id> is the plugin's own name for the device, whatever that is.
//
// Names hold visible ASCII without quotes and backslashes, "/" separates their segments, and ".."
// is not allowed. A byte of a resource or an ID that breaks this is written as % and two upper-case
// hexadecimal digits: all bytes that are no visible ASCII, ", \, / and % itself, and a dot that
// stands behind a dot. Each device has one name and each name one device.
//
// # Requests
//
// A request has the same form with placeholders for nodes and device: see [Request]. Different
// placeholders for the nodes may be met on the same nodes; different placeholders for devices never
// by the same device, as each has one to give.
//
// All functions are pure and safe for concurrent use.
package kubeletdevice
