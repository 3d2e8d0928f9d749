// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pluginhost calls one loaded scheduler plugin, such that nothing it does stops or ends the
// scheduler, and such that what makes it fail is kept from it for a time.
//
// A [Plugin] is the plugin; a [Call] says which method is called, and its [Subject] what the call
// is about: a request on a node, a node, or the pods that hold its devices. A call that panics or
// exceeds its time limit is blamed on one of these, or on the plugin. Probes find out which: calls
// for a plain request on the same node and on others. The package knows no node and no request,
// only their names and keys, and a [Probe] for each node.
//
// # States
//
// The plugin is in one of six states:
//
//	+------------+  hangs          returns, unprobed
//	|  Serving   | ------> Blocked ------> Unverified
//	|     ^      | <------                     |
//	|     |      |  returns                    |
//	|     v      | <---------------------------+
//	| BackingOff |
//	|            | ------> Quarantined ------> Probing
//	+------------+             ^                |   |
//	      ^                    +---no answer----+   |
//	      +----------------------answered-----------+
//
// and goes from one to another when
//
//	Serving      a call fails                                  -> BackingOff
//	Serving      a call fails, and plain requests fail too     -> Quarantined
//	Serving      a call hangs, and no other can be made        -> Blocked
//	BackingOff   the last subject is served again              -> Serving
//	BackingOff   a call fails, and plain requests fail too     -> Quarantined
//	BackingOff   a call hangs, and no other can be made        -> Blocked
//	Blocked      the call returns, nothing is to blame         -> Serving
//	Blocked      the call returns, its subject is to blame     -> BackingOff
//	Blocked      the call returns, nothing could be probed     -> Unverified
//	Unverified   the next call probes, nothing is suspected    -> Serving
//	Unverified   the next call probes, a subject is suspected  -> BackingOff
//	Quarantined  its time has passed, and a call comes         -> Probing
//	Probing      a probe is answered                           -> Serving
//	Probing      a probe is answered, a subject is to blame    -> BackingOff
//	Probing      no probe is answered                          -> Quarantined
//
// A subject is in back-off by itself: calls about it are not made before its time has passed, which
// doubles with each failure, and so does that of a quarantine.
//
// # Locks
//
// Plugin has two. mu guards health, the state machine, for moments; no call of the plugin is made
// under it. probes is held while probes are made, so that many failures at once are diagnosed one
// after another. probes is taken before mu, never under it. What callers read on every call is the
// state, which is atomic.
package pluginhost

// State says which calls of a plugin are made.
type State uint32

// The states. No call is made in Blocked and those after it.
const (
	// Serving makes every call.
	Serving State = iota
	// BackingOff makes no call about a subject that is in back-off.
	BackingOff
	// Unverified is BackingOff after a call that hung: what was to blame could not be probed. The
	// next call has it probed first.
	Unverified
	// Blocked makes no call before an earlier one has returned.
	Blocked
	// Quarantined makes no call before its time has passed: the plugin fails for plain requests.
	Quarantined
	// Probing is Quarantined while a call finds out whether the plugin answers again.
	Probing
)

// Calls reports whether calls of the plugin are made at all.
func (s State) Calls() bool { return s < Blocked }

// String returns the state's name.
func (s State) String() string {
	return [...]string{"serving", "backing off", "unverified", "blocked", "quarantined", "probing"}[s]
}
