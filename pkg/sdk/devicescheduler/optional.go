// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicescheduler

import "github.com/kubedevice/kubedevice/pkg/sdk/types"

// ConcurrentSafe is implemented by a plugin whose methods may be called from several goroutines at
// once. Without it the host serialises the calls.
type ConcurrentSafe interface {
	// ConcurrentSafe reports whether that holds. The host calls it once, when it loads the plugin.
	ConcurrentSafe() bool
}

// Pure is implemented by a plugin whose PodFitsDevice, PodAllocate and TakePodResources depend on
// nothing but their arguments: the host may cache the result for a node in some state and use it
// for every node in that state. A plugin that depends on other nodes, on a clock or on the names of
// the node and the pod must not declare it.
type Pure interface {
	// Pure reports whether that holds. The host calls it once, when it loads the plugin.
	Pure() bool
}

// Translator is implemented by a plugin that leaves placement to the group scheduler and only
// translates requests. The host caches what it returns.
//
// Its PodFitsDevice and PodAllocate depend on podInfo, except for the names in it; on the device
// resources of nodeInfo.Allocatable, not on the names of their instances; and on the nodes that
// AddNode and RemoveNode reported. They do not depend on what is used: the result for one node
// holds for all nodes of the same structure.
//
// What its TakePodResources adds for a pod depends on podInfo and on nodeInfo.Allocatable, not on
// what is used: the host calls it once for each pod, with Used empty, and adds up the results.
type Translator interface {
	// Revision grows whenever AddNode or RemoveNode has changed how the plugin translates. The host
	// calls it when it loads the plugin and after each AddNode and RemoveNode; it then retries the
	// pods that wait.
	Revision() uint64
}

// Patient is implemented by a plugin that has pods wait for the best devices of all nodes where
// others would do. A node may claim to have better devices than it has, or never have them free: so
// no pod waits for them for longer than the host allows.
type Patient interface {
	// AfterWait returns the scheduler for pods that have waited for so long: it has no pod wait for
	// what other nodes have. The host calls it once, when it loads the plugin, and then calls
	// PodFitsDevice and PodAllocate of what it returns for those pods, in place of the plugin's
	// own. What the plugin declares of its answers holds for these too.
	AfterWait() DeviceScheduler
}

// Preferring is implemented by a plugin that has pods wait for the best devices and can also serve
// them with the best of those that are free now. Which of the two holds for pods that say nothing
// of it is a setting of the cluster.
type Preferring interface {
	// Preferring returns the scheduler of a cluster in which pods do not wait for the best devices
	// unless they say so. The host calls it once, when it loads the plugin, and then calls
	// PodFitsDevice and PodAllocate of what it returns in place of the plugin's own, except for
	// pods for which it calls those of AfterWait. What the plugin declares of its answers holds for
	// these too. What it returns is a [Refiner].
	Preferring() DeviceScheduler
}

// Refiner is implemented by a scheduler that leaves placement to the group scheduler and prefers
// some of the devices that serve a pod. Its PodFitsDevice and PodAllocate request any of them, so
// that the pod fits wherever enough are free; then the host calls Refine. The host looks for it in
// what the methods of [Preferring] and [Patient] return.
type Refiner interface {
	// Refine narrows the requests of a pod that fits the node to the devices that it prefers among
	// those that are free: podInfo is what all plugins translated, and Refine replaces what its
	// own plugin wrote into DevRequests. The host uses the result if the group scheduler can place
	// it, and the pod as it was otherwise.
	//
	// quality says how good those devices are, from 0 to 1: of the nodes that a pod fits, the host
	// prefers those with the highest. prefers is false for a pod that prefers no devices; it then
	// stays as it was.
	//
	// The result depends on podInfo, except for the names in it, and on the device resources of
	// nodeInfo.Allocatable and nodeInfo.Used, but not on names of instances: the host uses it
	// for all nodes of the same structure and use.
	Refine(nodeInfo *types.NodeInfo, podInfo *types.PodInfo) (quality float64, prefers bool)
}

// ResourceClaimer is implemented by a plugin that serves plain resource names which no node needs
// to advertise: a pod that requests one of them is a device pod, except on nodes whose kubelet
// counts the resource by itself.
type ResourceClaimer interface {
	// ClaimedResources returns the names. The host calls it once, when it loads the plugin.
	ClaimedResources() []types.ResourceName
}

// DeviceCounter is implemented by a plugin whose devices are also counted by a plain resource. The
// host then knows how many whole devices a pod requests by device paths, and compares that with the
// limits of its containers, which are what quotas count. Without it, quotas do not hold for
// requests by path.
type DeviceCounter interface {
	// CountedDevices returns which devices which plain resource counts. The host calls it once,
	// when it loads the plugin. Of two plugins that count the same devices, the first one's is
	// used.
	CountedDevices() []CountedDevice
}

// CountedDevice says that a plain resource counts devices: a request for
// …/<level>/<instance>/<resource> is for as many whole devices as its quantity.
type CountedDevice struct {
	// Plain is the plain resource, such as nvidia.com/gpu.
	Plain types.ResourceName
	// Level is the level of the devices, such as gpu.
	Level string
	// Resource is what a container holds 1 of when it has the device for itself, such as cards.
	Resource string
}

// Translating is implemented by a plugin that serves requests for resources that no device has, and
// makes requests for another resource of the same devices of them: millionths of a GPU's memory
// become bytes. Without it, such a request counts as one that no plugin serves.
type Translating interface {
	// TranslatedResources returns these resources. The host calls it once, when it loads the
	// plugin. Of two plugins that translate the same resource, the first one's is used.
	TranslatedResources() []TranslatedResource
}

// TranslatedResource says that a plugin makes requests for …/<level>/<instance>/<to> of requests
// for …/<level>/<instance>/<resource>.
type TranslatedResource struct {
	// Level is the level of the devices, such as gpu.
	Level string
	// Resource is what is requested, such as memory-millionths.
	Resource string
	// To is what devices have, such as memory.
	To string
}

// PodObserver is implemented by a plugin that keeps counters of its own. The host reports each pod
// once, by UID, and never in a simulation.
type PodObserver interface {
	// PodHolds reports that the pod's allocation on the node is final.
	PodHolds(nodeName, podUID string, podInfo *types.PodInfo)
	// PodGone reports that the pod no longer holds anything.
	PodGone(nodeName, podUID string)
}

// Specialist is implemented by a plugin that serves only devices of its own kinds: it neither
// depends on nor changes what nodes have, what is used and what pods request of others. The host
// does not call it for pods that request none of its kinds, and does not report to it what they
// hold. Where all plugins are specialists, a quarantined one delays only the pods that request its
// kinds.
type Specialist interface {
	// Kinds returns the plugin's kinds of devices. The host calls it once, when it loads the
	// plugin.
	Kinds() Kinds
}

// Kinds are kinds of devices, by the names that requests and resources have.
type Kinds struct {
	// Plain are plain resource names, such as nvidia.com/gpu.
	Plain []types.ResourceName
	// Levels are the levels of device resources: a path, written with or without resource/group, is
	// of these kinds when one of its levels is among them.
	Levels []string
	// Options are the names of requests that say how devices of these kinds are chosen, such as
	// gpu/gpu-generate-topology, without resource/group. The host writes an event for a request
	// that is no option of any plugin. If it is nil, every request of these kinds may be an option.
	//
	// An option with a quantity above 0 demands something, and 0 demands nothing. A container that
	// counts one of Plain, and demands something by an option of its own or else of its pod, is
	// kept from nodes where another plugin or the kubelet serves the count. If the plugin is
	// [Patient], that ends when the pod has waited.
	Options []types.ResourceName
	// Topology are those of Options that say how the counted devices of a container are connected.
	// They demand nothing for a container that counts one device.
	Topology []types.ResourceName
}

// Describer is implemented by a plugin that has words for what its device paths name. The group
// scheduler uses them in the reasons why a pod does not fit: "have fewer than 2 free GPUs in one
// NVLink pair". A level without a word appears by its own name.
type Describer interface {
	// Words returns them. The host calls it once, when it loads the plugin. Of two plugins that
	// have a word for the same level, the first one's is used.
	Words() Words
}

// Words are what people call devices, the groups that they are in, and quantities of their
// resources.
type Words struct {
	// Levels has the word for an instance of a level, by the level's name: gpu, gpugrp0.
	Levels map[string]Noun
	// Units has the unit of a resource's quantities, by the level that has the resource and the
	// resource: gpu/memory.
	Units map[string]Unit
}

// Noun is the word for a thing, without an article: One for one of them, Many for several.
type Noun struct{ One, Many string }

// Unit is the unit of a quantity: Bytes, or any text that follows the number, such as "W".
type Unit string

// Bytes is the unit of quantities that are printed in MiB, GiB and so on.
const Bytes Unit = "bytes"
