// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package device is what a device plugin implements: it reports what the node has, and what a
// container needs in order to use the devices that the scheduler chose for it.
//
// A plugin is a Go program of package main, built with -buildmode=plugin -trimpath, that exports
//
//	func CreateDevicePlugin() (device.Device, error)
//
// kubecri loads the *.so files of --cridevices in the order of their file names.
//
// # What the host promises
//
//   - It calls New once, then Start, then the other methods, and serialises the calls unless the
//     plugin implements [ConcurrentSafe].
//   - Every argument is a copy made for that call. A plugin changes what the documentation of the
//     method names and keeps nothing. What else it writes is discarded.
//   - No map of an argument is nil: none of a NodeInfo, none of a PodInfo, none of any of its
//     containers. A plugin may write into each of them without a check. This holds for all methods
//     of Device and of the optional interfaces.
//   - InitContainers and RunningContainers of a PodInfo have an entry for every container of the
//     pod's spec.
//   - A panic is recovered and counts as an error. A call that outlives its deadline fails the
//     container that it was made for; it cannot be stopped.
//
// Abilities beyond [Device] are optional interfaces that the host finds by type assertion:
// [ConcurrentSafe], [Allocator], [Isolator], [Firewalled], [HealthReporter], [Reshaper],
// [Attributed], [UsageReporter].
package device

import "github.com/kubedevice/kubedevice/pkg/sdk/types"

// CreateSymbol is the name under which a device plugin exports its entry point.
const CreateSymbol = "CreateDevicePlugin"

// CreateFunc is the type of a device plugin's entry point. It is called once per process; the host
// first tries each file in a child process, where it is called too.
type CreateFunc = func() (Device, error)

// Mount is a bind mount into the container.
type Mount struct {
	// ContainerPath is the absolute path inside the container.
	ContainerPath string
	// HostPath is the absolute path on the node.
	HostPath string
	// Readonly mounts it read-only.
	Readonly bool
}

// Device is one kind of device on this node. The package documentation lists what holds for all
// methods.
type Device interface {
	// New prepares the plugin. An error leaves the plugin out. Like the entry point it is called in
	// the host's child process too, so it must not wait for anything and must leave nothing behind.
	New() error

	// Start finds the devices. An error leaves the plugin non-operational: it offers no devices,
	// and the host tries again later.
	Start() error

	// UpdateNodeInfo adds the node's devices, as they are now, to Capacity and Allocatable of
	// nodeInfo, and the plain counts to publish as extended resources to KubeCap and KubeAlloc. It
	// is called at start and then periodically, so it should be cheap and deterministic. An error
	// keeps what was published before.
	UpdateNodeInfo(nodeInfo *types.NodeInfo) error

	// Allocate returns the mounts, the paths of device nodes and the environment variables that the
	// container needs for the devices in its AllocateFrom. AllocateFrom also lists devices of other
	// plugins: return nothing for those. The container gets a device at the same path with
	// permissions mrw. Allocate is called again with the same arguments when the container is
	// started again, and must then return the same.
	Allocate(
		pod *types.PodInfo, container *types.ContainerInfo,
	) (mounts []Mount, devicePaths []string, envs map[string]string, err error)

	// GetName returns the plugin's name for logs, metrics and events.
	GetName() string
}
