// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemanager

// presence is whether a plugin serves a resource.
//
//	                  registers               lists
//	absent ─────────────────────► arriving ────────────► serving ◄──────────┐
//	   ▲                             ▲   │                │   │             │ lists, or leaves while
//	   │ Keep is over      registers │   │ leaves         │   │ a newer     │ an older is there
//	   └──────────────────────────── lost ◄───────────────┘   │ registers   │
//	                                   ▲    leaves            ▼             │
//	                                   └────────────────── succeeding ──────┘
//	                                      leaves, the last
//
// A plugin that registers counts at once, whether or not an older one lives. The older one is kept:
// where the newest leaves, the one before it serves again, with its last list. A resource goes from
// one presence to another when
//
//	Absent      a plugin registers                              -> Arriving
//	Absent      the state file has its devices                  -> Lost
//	Lost        a plugin registers                              -> Arriving
//	Lost        Keep has passed                                 -> Absent
//	Lost        the kubelet has a device of it                  -> Absent
//	Arriving    the plugin lists its devices                    -> Serving
//	Arriving    the plugin leaves, and an older one has listed  -> Serving
//	Arriving    the plugin leaves, the last one                 -> Lost
//	Serving     a newer plugin registers                        -> Succeeding
//	Serving     the plugin leaves, and an older one is to list  -> Arriving
//	Serving     the plugin leaves, the last one                 -> Lost
//	Succeeding  the plugin lists its devices                    -> Serving
//	Succeeding  the plugin leaves, and an older one has listed  -> Serving
//	Succeeding  the plugin leaves, and an older one is to list  -> Arriving
//	Succeeding  the plugin leaves, the last one                 -> Lost
//
// It is independent of the resource's ownership.
type presence int

const (
	absent     presence = iota // no plugin; nothing is known of devices
	lost                       // no plugin; the devices that it had are known for Keep
	arriving                   // a plugin has registered and not listed yet, and there was none before
	succeeding                 // the same, and the devices of the one before may be allocated meanwhile
	serving                    // the plugin has listed its devices, which may be allocated
)

// String returns the presence's name.
func (p presence) String() string {
	return [...]string{"absent", "lost", "arriving", "succeeding", "serving"}[p]
}
