// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubeletplugin is the built-in device scheduler for the devices of kubelet device plugins.
// Package kubeletdevice defines their names.
//
// # Requests
//
// A container with such a resource in its limits, for example intel.com/qat: 2, is allocated that
// many devices. They come from as few NUMA nodes as possible, together with the devices of the
// container's other resources of this kind.
//
// The requests in the annotation are more specific. Each requests one or more of the devices that
// the limits count:
//
//	numa/A/nvidia.com:gpu: 2                           two GPUs on one NUMA node, called A here
//	numa/A/vendor.example:nic: 1                       a NIC on the same NUMA node
//	numa/A/vendor.example:nic/0/device: 1              the same, in the form of a device's name
//	numa/B/intel.com:qat/=0000:3d:01.0/device: 1       this device
//	numa/B/intel.com:qat/=0000:3d:02.0/device: 0       not this device
//	numa/=1/intel.com:qat: 1                           a device of NUMA node 1
//
// Each may begin with resource/group. A and B are placeholders: within one container, requests with
// one placeholder are a group, and one NUMA node serves the group. The requests are mandatory: a
// pod waits until a node can serve them.
//
//   - A device that belongs to several NUMA nodes is grouped with devices of exactly these nodes.
//   - A device whose plugin reports no NUMA node serves counts, and groups of a single device.
//   - The shares that a pod counts (GPU-7f3a::0, GPU-7f3a::1) come from as many devices as
//     possible, first from those of which other pods hold the fewest shares. This has priority over
//     few NUMA nodes.
//   - A device that the pod or one of its containers excludes is not allocated to the pod.
//
// # Which plugin serves a resource
//
// The devices that a node publishes decide. This scheduler serves a resource on nodes that publish
// devices of it under the names of package kubeletdevice; other plugins serve it on all other
// nodes. Later plugins do not see a count that this scheduler serves.
//
// # Allocation
//
// The scheduler chooses among the node's free devices and pins its choice, so that the group
// scheduler only checks and accounts for it. It allocates in three stages: devices by ID, groups,
// counts. A search with backtracking places the groups. With sidecars, a good choice for one
// container may leave no device for another: if the stages fail, a second search tries all
// combinations. If the pod then holds more devices than Kubernetes counts for it, the same searches
// run once more with that number as a bound, and their result counts if there is one.
//
// A search stops at its step limit and reports that; the number of inspected devices
// has a limit, too. Two caps need no search and come first: the number of devices that a pod may
// request, and the number of devices whose allocation fits into a container of the runtime.
//
// The scheduler uses the NUMA node that has the fewest devices left over, so that large free groups
// remain. The score of a node follows the same rule.
package kubeletplugin
