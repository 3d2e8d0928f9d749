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
// obeys. [Firewalled] can say more.
type Isolator interface {
	// DenyEnvs returns environment variables by which a container gets none of the plugin's
	// devices, such as NVIDIA_VISIBLE_DEVICES=void. A host with a device firewall sets them, over
	// the values of the image and the pod, in containers of pods from the API server that hold none
	// of the plugin's devices. The host calls it once, when it loads the plugin, before Start.
	DenyEnvs() map[string]string
}

// Firewalled is implemented by a plugin whose devices a container could take without an allocation
// in ways that the host does not know. A host with a device firewall closes them. The ways of
// common vendors are built in.
type Firewalled interface {
	// Firewall returns the ways. The host calls it once, when it loads the plugin, before Start,
	// and keeps the answer for the time when the plugin cannot be loaded.
	Firewall() Firewall
}

// Firewall describes how a container could get devices of a plugin without an allocation.
type Firewall struct {
	// Envs are environment variables that the container runtime of the node obeys, each with the
	// value by which a container gets nothing. They are set in every container of pods from the
	// API server, over the values of the image and the pod, except where the plugin itself sets
	// them for devices that the container was allocated.
	Envs map[string]string `json:"envs,omitempty"`
	// CDIKinds are the kinds (vendor/class) of the plugin's CDI devices. In either half, * stands
	// for any characters. A container to which the pod or the kubelet, and not the plugin, gives
	// such a device is refused.
	CDIKinds []string `json:"cdiKinds,omitempty"`
	// MountPaths begin the absolute paths in a container at which a mount requests devices. A
	// container whose pod mounts something there is refused.
	MountPaths []string `json:"mountPaths,omitempty"`
	// Variables are further environment variables, for container runtimes that obey others than
	// those of one name, or not the last one.
	Variables []FirewallVariable `json:"variables,omitempty"`
	// DeviceFiles are patterns, such as /dev/widget*, of the plugin's device files on the node, as
	// of filepath.Glob. A container whose pod names such a file to CRI-O in an annotation is
	// refused.
	DeviceFiles []string `json:"deviceFiles,omitempty"`
	// OtherDrivers are the names of drivers of resource claims that give out CDI devices of
	// CDIKinds, but no device that a plugin gives out, here or at the kubelet. What the kubelet
	// gives a container from them stays. They count for the plugin's own vendor alone: the vendor
	// half of a kind must be the domain of the plugin's resources or below it, and the host must
	// not know that vendor. Of a vendor that the host knows, the node's administrator declares
	// them: a plugin closes ways to the devices of others, and opens none.
	OtherDrivers []string `json:"otherDrivers,omitempty"`
}

// FirewallVariable is an environment variable that a container runtime obeys. Variables of one name
// may stand in a container more than once, as those of its image and its pod do.
type FirewallVariable struct {
	// Name is its name. One that ends with * stands for all that begin so.
	Name string `json:"name"`
	// Nothing is the value by which a container gets nothing.
	Nothing string `json:"nothing"`
	// Takes says which one counts where several match: "first", "last", or "any" if that is not
	// known. Empty means "last". A container whose first one cannot be overridden is refused.
	Takes string `json:"takes,omitempty"`
}

// Reshaper is implemented by a plugin that can make other devices out of those that no pod holds,
// such as other partitions of a GPU.
//
// A device that is to go must first not be offered for some seconds: UpdateNodeInfo does not list
// it. The scheduler may have given it to a pod meanwhile, of which the node learns within these
// seconds; then the plugin offers it again. A pod that comes later still is refused by the node.
type Reshaper interface {
	// SetHeld reports to the plugin which devices of the node are held by pods that have not ended,
	// each by what the names of its resources have in common, as in [Health]; those of other
	// plugins are among them. complete says that there are no others: without it no device may go.
	// The host calls it before each UpdateNodeInfo, which it leaves out if this call fails. Where
	// it never calls it, no device may go.
	SetHeld(devices []string, complete bool)
}
