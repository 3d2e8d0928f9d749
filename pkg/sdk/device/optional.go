// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package device

import "github.com/kubedevice/kubedevice/pkg/sdk/types"

// ConcurrentSafe is implemented by a plugin whose methods may be called from several goroutines at
// once. Without it the host serialises the calls.
type ConcurrentSafe interface {
	// ConcurrentSafe reports whether that holds. The host calls it once, when it loads the plugin.
	ConcurrentSafe() bool
}

// Allocator is implemented by a plugin whose containers need more than [Device.Allocate] can
// express: a device under another path or with fewer permissions, an annotation, a CDI device. The
// host then calls AllocateContainer and never Allocate. A plugin for hosts that do not know
// Allocator too keeps an Allocate that is useful by itself.
type Allocator interface {
	// AllocateContainer returns what the container needs for the devices in its AllocateFrom, or
	// nil if none of them are the plugin's. The rules of Allocate hold: AllocateFrom also lists
	// devices of other plugins, and the same arguments must have the same result.
	AllocateContainer(pod *types.PodInfo, container *types.ContainerInfo) (*Allocation, error)
}

// Isolator is implemented by a plugin whose devices a container could take without an allocation,
// because its image or its pod sets an environment variable that the container runtime of the node
// obeys.
type Isolator interface {
	// DenyEnvs returns environment variables by which a container gets none of the plugin's
	// devices, such as NVIDIA_VISIBLE_DEVICES=void. A host that runs with --isolate sets them, over
	// the values of the image and the pod, in containers of pods from the API server that hold none
	// of the plugin's devices. The host calls it once, when it loads the plugin, before Start.
	DenyEnvs() map[string]string
}
