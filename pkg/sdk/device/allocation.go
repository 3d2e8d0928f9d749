// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package device

import "github.com/kubedevice/kubedevice/pkg/sdk/types"

// Allocator is implemented by a plugin whose containers need more than [Device.Allocate] can say: a
// device under another path or with fewer permissions, an annotation, a CDI device. The host then
// calls AllocateContainer and never Allocate. A plugin that also wants to serve hosts that do not
// know Allocator keeps an Allocate that is useful by itself.
type Allocator interface {
	// AllocateContainer returns what the container needs for the devices in its AllocateFrom, or
	// nil if none of them are the plugin's. All that is said of Allocate holds: both arguments are
	// the call's own copies, AllocateFrom also lists devices of other plugins, and the same
	// arguments must have the same answer.
	AllocateContainer(pod *types.PodInfo, container *types.ContainerInfo) (*Allocation, error)
}

// Allocation is what a container needs to use its devices. All parts are optional. What cannot be
// given to the container as it stands here fails the container: nothing is left out in silence.
type Allocation struct {
	// Devices are device nodes of the host.
	Devices []HostDevice
	// Mounts are bind mounts.
	Mounts []HostMount
	// Envs are environment variables. They win over those of the pod and of its image.
	Envs map[string]string
	// Annotations go to the container runtime and to what it calls, such as OCI hooks. They are the
	// container's, not the pod's; the API server never sees them. A key must not begin with
	// io.kubernetes. or KubeDevice/, which others own.
	Annotations map[string]string
	// CDIDevices are fully qualified names of devices that CDI files of the host describe, such as
	// vendor.com/gpu=0. The container is refused where the runtime would ignore them.
	CDIDevices []string
	// Links are the symbolic links, by absolute path, that the way to a HostPath may go over. Each
	// link of a chain counts, also one to a folder. Any other symbolic link on the way is an error:
	// whoever can change it could point the container at another file.
	Links []string
}

// HostDevice is a device node of the host, as the container sees it.
type HostDevice struct {
	// HostPath is the absolute path of a device node. A folder of device nodes is none.
	HostPath string
	// ContainerPath is the absolute path in the container; empty means HostPath, as it stands here,
	// links and all.
	ContainerPath string
	// Permissions are one or more of r (read), w (write) and m (mknod); empty means mrw.
	Permissions string
}

// HostMount is a bind mount of the host's file or folder into the container.
//
// It has no mount options and no recursive read-only: runtimes that do not know them ignore them in
// silence.
type HostMount struct {
	// HostPath is the absolute path of a file or folder that exists.
	HostPath string
	// ContainerPath is the absolute path in the container.
	ContainerPath string
	// Readonly mounts it read-only.
	Readonly bool
	// Propagation says whether later mounts below it are seen on the other side.
	Propagation Propagation
	// SELinuxRelabel has the runtime give the host's files a label with which the container may use
	// them.
	SELinuxRelabel bool
}

// Propagation says where mounts that are made later, below a mount, appear.
type Propagation int

const (
	// Private keeps them where they are made.
	Private Propagation = iota
	// HostToContainer shows the host's in the container.
	HostToContainer
	// Bidirectional shows them on both sides. Runtimes want the host's mount to be shared for it.
	Bidirectional
)
