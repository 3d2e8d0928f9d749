// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package devicemanager serves the kubelet's device-plugin API (v1beta1) in place of the kubelet, so that plugins that know
// nothing of KubeDevice run unchanged: what they see is a folder with a kubelet.sock in it.
//
// A plugin registers a resource, by calling Register on kubelet.sock or by putting a socket into the registry folder. The
// host calls back, follows the plugin's list of devices, and asks the plugin what a container needs for the devices that the
// scheduler has chosen.
//
// # What holds for a resource
//
//   - One plugin serves it at a time. A second one is refused while the first answers, unless it comes from the same socket:
//     then it is the first one, started again.
//   - Each list replaces the one before. A list that cannot be right is refused as a whole; the one before stays.
//   - Devices that are not healthy are not allocatable. When the plugin's stream ends, none is, at once. What it had stays
//     known for [Keep], and goes if no plugin comes back for it. A restart of this program is no different: what plugins
//     told is remembered in a file.
//   - The kubelet must not serve it too. While it does, or still remembers that it did, nothing of it is offered here.
//
// What users see of it, the names of devices among them, is in package hosted.
package devicemanager

import "time"

// The folders' defaults, below the state folder, and the file in which the host remembers the plugins' devices.
const (
	DirName         = "device-plugins"
	RegistryDirName = "plugins_registry"
	StateFileName   = "devices"
)

// Keep is how long the devices of a plugin that is gone stay known, unallocatable: as long as with the kubelet.
const Keep = 5 * time.Minute

const (
	// dialLimit is how long a plugin may take to answer when it has registered.
	dialLimit = 10 * time.Second
	// aliveLimit is how long the plugin that has a resource may take to show that it is still there.
	aliveLimit = 2 * time.Second
	// allocateLimit and preStartLimit limit the calls of these names.
	allocateLimit = 20 * time.Second
	preStartLimit = 30 * time.Second
	// awaitLimit is how long a call waits for a plugin that is starting again at this moment.
	awaitLimit = 10 * time.Second
	// returnLimit is how long after a start the host waits for the plugins that it remembers before it tells the node that
	// their devices are away.
	returnLimit = 15 * time.Second
)
