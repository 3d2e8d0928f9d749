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
// The requests in the annotation are more specific. Each is for one or more of the devices that the
// limits count:
//
//	numa/A/nvidia.com:gpu: 2                           two GPUs on one NUMA node, called A here
//	numa/A/vendor.example:nic: 1                       a NIC on the same NUMA node
//	numa/A/vendor.example:nic/0/device: 1              the same, in the form of a device's name
//	numa/B/intel.com:qat/=0000:3d:01.0/device: 1       this device
//	numa/B/intel.com:qat/=0000:3d:02.0/device: 0       not this device
//	numa/=1/intel.com:qat: 1                           a device of NUMA node 1
//
// Each may begin with resource/group. A and B are placeholders: within one container, requests with
// one placeholder are a group and are served from one NUMA node. The requests are mandatory: a pod
// waits until they can be served.
//
//   - A device that belongs to several NUMA nodes is grouped with devices of exactly these nodes.
//   - A device whose plugin reports no NUMA node serves counts, and groups of a single device.
//   - Shares of a device (GPU-7f3a::0, GPU-7f3a::1) that a pod counts are of as many devices as
//     possible, and first of those of which others have the fewest. This goes before few NUMA
//     nodes.
//   - A device that the pod or one of its containers excludes is not allocated to the pod.
//
// # Who serves a resource
//
// The devices that a node publishes decide: a resource is served here on nodes that publish devices
// of it by the names of package kubeletdevice, and by other plugins elsewhere. A count that is
// served here is hidden from the plugins that come later.
//
// # Allocation
//
// The scheduler chooses among the node's free devices and pins its choice, so that the group
// scheduler only checks and accounts for it. It allocates in three stages: devices by ID, groups,
// counts. The groups are placed by a search with backtracking. Where sidecars are involved, a
// choice that is good for one container may leave none for another: if the stages fail then, a
// second search tries all combinations. A search that reaches its step limit reports so; and what
// all of them look at has a limit too. Before them come the caps that need no search: how many
// devices a pod may request, and how many a container can carry in the runtime.
//
// Of the NUMA nodes that can serve a request, the one with the fewest devices left over is used, so
// that large free groups remain. The score of a node follows the same measure.
package kubeletplugin
