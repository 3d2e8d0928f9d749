// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package device

// Allocation is what a container needs to use its devices. All fields are optional. The container
// fails if any part cannot be applied exactly; no part is left out in silence.
type Allocation struct {
	// Devices are device nodes of the host.
	Devices []HostDevice
	// Mounts are bind mounts.
	Mounts []HostMount
	// Envs are environment variables. They override those of the pod and of its image.
	Envs map[string]string
	// Annotations go to the container runtime and to what it calls, such as OCI hooks. They are the
	// container's, not the pod's; the API server never sees them. The prefixes io.kubernetes. and
	// KubeDevice/ are reserved.
	Annotations map[string]string
	// CDIDevices are fully qualified names of devices that CDI files of the node describe, such as
	// vendor.com/gpu=0. The container is refused where the runtime would ignore them.
	CDIDevices []string
	// Links are the symbolic links, by absolute path, that a HostPath may pass. Each link of a
	// chain counts, also one to a directory. Any other symbolic link in the path is an error: a
	// user who can change it could point the container at another file.
	Links []string
}

// HostDevice is a device node of the host, as the container sees it.
type HostDevice struct {
	// HostPath is the absolute path of a device node, not of a directory of device nodes.
	HostPath string
	// ContainerPath is the absolute path in the container; empty means HostPath, unresolved.
	ContainerPath string
	// Permissions are one or more of r (read), w (write) and m (mknod); empty means mrw.
	Permissions string
}

// HostMount is a bind mount of a file or directory of the node into the container.
//
// It has no mount options and no recursive read-only: runtimes that do not know them ignore them in
// silence.
type HostMount struct {
	// HostPath is the absolute path of a file or directory that exists.
	HostPath string
	// ContainerPath is the absolute path in the container.
	ContainerPath string
	// Readonly mounts it read-only.
	Readonly bool
	// Propagation decides whether later mounts below it are visible on the other side.
	Propagation Propagation
	// SELinuxRelabel makes the runtime give the node's files a label with which the container may
	// use them.
	SELinuxRelabel bool
}

// Propagation decides where mounts that are made later, below a mount, are visible.
type Propagation int

const (
	// Private makes them visible only where they are made.
	Private Propagation = iota
	// HostToContainer makes the host's visible in the container.
	HostToContainer
	// Bidirectional makes them visible on both sides. Runtimes require that the host's mount is
	// shared.
	Bidirectional
)
