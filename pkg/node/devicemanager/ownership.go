// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemanager

// ownership is who has a resource at the kubelet.
//
// The kubelet owns a resource for as long as it remembers its plugin, or a pod holds a device that
// it allocated. In that time it fails each pod that requests the resource, unless a plugin has
// registered it there. So this program takes over the resource of a plugin that has moved here: it
// registers in the plugin's place, see [Takeover].
//
//	+---------+         +----------+         +-------------+         +------------+
//	|         | ------> | Adopting | ------> | Registering | ------> | Registered |
//	|         | <------ |          |         |             |         |            |
//	|         |         +----------+         +-------------+         +------------+
//	|  Other  |                                 ^    |                 |    ^
//	|         |                                 |    v                 |    |
//	|         | <------------------------------ [ Away ] <-------------+    |
//	|         |                                    ^                        |
//	|         |         +-----------+--------------+                        |
//	|         | ------> | Inherited | --------------------------------------+
//	+---------+ <------ +-----------+
//
// It goes from one to another when
//
//	Other        its plugin is here, and the kubelet remembers it -> Adopting
//	Other        the state file says that it was taken over       -> Inherited
//	Adopting     its pods are known                               -> Registering
//	Adopting     its pods are not known                           -> Other
//	Registering  the kubelet has the devices                      -> Registered
//	Registering  the plugin is gone for registrationGrace         -> Away
//	Registering  the kubelet has forgotten it                     -> Other
//	Registered   the plugin is gone for registrationGrace         -> Away
//	Registered   the kubelet has forgotten it                     -> Other
//	Registered   another plugin gave a container a device         -> Other
//	Inherited    the devices are remembered                       -> Registered
//	Inherited    no devices are remembered                        -> Away
//	Inherited    the kubelet has it in the place of a plugin file -> Away
//	Inherited    the kubelet has forgotten it                     -> Other
//	Away         the plugin serves again                          -> Registering
//	Away         the kubelet has forgotten it                     -> Other
//	Away         the kubelet has a device of it                   -> Other
type ownership int

const (
	// other: the kubelet has the resource from a plugin, or does not know it.
	other ownership = iota
	// adopting is other while the pods are found that hold its devices by the kubelet.
	adopting
	// inherited: the process before this one was registered, and this one is not yet.
	inherited
	// away: the kubelet remembers the resource from this program, which has left it.
	away
	// registering: this program registers. The kubelet does not have the devices yet.
	registering
	// registered: the kubelet has had the devices, and counts and publishes the resource by them.
	registered
)

// isTaken reports whether what the kubelet remembers of the resource is from this program.
func (o ownership) isTaken() bool { return o >= inherited }

// isRegistered reports whether the kubelet can have a plugin of the resource that is this program.
func (o ownership) isRegistered() bool { return o >= inherited && o != away }

// isOffered reports whether pods may be given the devices, as far as the kubelet matters: it admits
// such a pod.
func (o ownership) isOffered() bool { return o != away && o != registering }

// String returns the ownership's name.
func (o ownership) String() string {
	return [...]string{"other", "adopting", "inherited", "away", "registering", "registered"}[o]
}
