// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package devicemanager serves the kubelet's device-plugin API (v1beta1) in the kubelet's place, so
// that kubelet device plugins run unchanged: all they see is a directory with a kubelet.sock.
//
// A plugin registers a resource: it calls Register on kubelet.sock, or puts a socket into the
// registry directory. The manager calls back, watches the plugin's list of devices, and asks the
// plugin what a container needs for the devices that the scheduler has chosen.
//
// # Rules for a resource
//
//   - The newest plugin that has registered serves it, as with the kubelet. An older one that lives
//     is kept for when the newer ones leave; see presence.
//   - Each list replaces the one before. An invalid list is refused, and the one before remains. A
//     device that is listed twice is one device.
//   - Unhealthy devices are not allocatable. When the plugin's stream ends, none is, at once. The
//     devices remain known for [Keep], and across a restart of this program by a state file.
//   - While the kubelet serves it too, nothing is published here: its devices would be given out
//     twice. While the kubelet only remembers it, the resource can be taken over, see Takeover;
//     without that it is not offered until the kubelet has forgotten it.
//
// Package kubeletdevice defines the names of the devices.
package devicemanager

import "time"

// The defaults of the directories and the state file, relative to the state directory.
const (
	DirName         = "device-plugins"
	RegistryDirName = "plugins_registry"
	StateFileName   = "devices"
)

// KeepCapacity is how long the devices of a plugin that is gone remain known: as long as with the
// kubelet.
const KeepCapacity = 5 * time.Minute

const (
	dialTimeout     = 10 * time.Second // for a plugin that registers to be connected, or to answer GetInfo
	optionsTimeout  = time.Minute      // for it to answer GetDevicePluginOptions
	notifyTimeout   = 5 * time.Second  // for a plugin to be notified whether it is registered
	allocateTimeout = 10 * time.Minute // for a call of Allocate, whether or not a container waits for it
	answerTimeout   = 20 * time.Second // for a container to wait for the answer of such a call
	answerTTL       = 10 * time.Minute // for an answer that came too late to be fetched
	preStartTimeout = 30 * time.Second // for PreStartContainer
	awaitTimeout    = 10 * time.Second // for a plugin that is restarting to be back when a container needs it
	// returnTimeout is for the plugins of the state file to register after a start. Until then
	// nobody is notified that their devices are gone.
	returnTimeout = 15 * time.Second
)
