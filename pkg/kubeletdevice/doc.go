// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubeletdevice defines how the devices of kubelet device plugins are named as resources of
// their node, and how pods request them. The scheduler and the node agree on it.
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
// All devices of a node are in one tree, whichever plugins they come from. So a GPU and a NIC on
// one NUMA node are two requests with one placeholder at the level numa.
//
//   - <nodes> are the NUMA nodes of the device, in ascending order and joined by "-"; "none" for a
//     device whose plugin reports no topology. They are instances like any others: a device of
//     nodes 0 and 1 is grouped with devices of exactly these two, not with those of node 0.
//   - <resource> is the extended resource that the plugin registered, with ":" in place of "/".
//   - <id> is the plugin's own name for the device.
//
// A name has visible ASCII without quotes and backslashes; "/" separates its segments, and ".." is
// not allowed. Any other byte of a resource or an ID is written as % and two upper-case hexadecimal
// digits; so are ", \, / and %, and a dot after a dot. Each device has one name and each name one
// device.
//
// # Requests
//
// A request has the same form, with placeholders for nodes and device: see [Request]. Different
// placeholders for the nodes may be served by the same nodes. Different placeholders for devices
// are never served by the same device, as each has only one to give.
//
// All functions are pure and safe for concurrent use.
package kubeletdevice
