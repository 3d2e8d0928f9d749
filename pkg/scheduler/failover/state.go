// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package failover

import "time"

// state is how far a replacement is that the engine has chosen for a pod. In all states but Absent
// its devices are reserved.
//
//	+--------+         +---------+
//	|        | ------> |         |
//	| Chosen |         | Written | --------+
//	|        | <------ |         |         |
//	+--------+         +---------+         v
//	   |  ^                            +--------+
//	   |  |            +------------+  |        |
//	   |  +----------- |            |  | Absent |
//	   |               | Unresolved |  |        |
//	   +-------------> |            |  +--------+
//	                   +------------+
//
// It goes from one to another when
//
//	Absent      devices are chosen for the request of a node          -> Chosen
//	Chosen      the pod has them in the API server                    -> Written
//	Chosen      the API server refuses them, or the pod has changed   -> Absent
//	Chosen      the API server does not answer                        -> Unresolved
//	Written     keepReserved is over, and the informer shows the pod  -> Absent
//	Written     the node requests others, as these have failed        -> Chosen
//	Unresolved  lateEffect is over                                    -> Absent
//	Unresolved  the pod has them, and its node requests others        -> Chosen
type state int

const (
	// Absent says that nothing is reserved for the pod.
	Absent state = iota
	// Chosen says that the devices are reserved, but not yet the pod's in the API server.
	Chosen
	// Written says that the API server has confirmed that the pod has them.
	Written
	// Unresolved says that the API server may still give them to the pod.
	Unresolved
)

// String returns the state's name.
func (s state) String() string {
	return [...]string{"absent", "chosen", "written", "unresolved"}[s]
}

// reservation is a replacement for a pod whose devices are reserved. The zero value is absent.
type reservation struct {
	state      state
	node       string
	generation int64     // of the pod's allocation with the devices
	until      time.Time // when it expires
}

// left returns how long the devices stay reserved. shown reports whether the informer shows the
// generation: until it does, the devices of a Written replacement would seem free.
func (r reservation) left(now time.Time, shown func() bool) time.Duration {
	left := r.until.Sub(now)
	switch {
	case left > 0:
		return left
	case r.state == Chosen, r.state == Written && !shown():
		return retryInterval
	default:
		return 0
	}
}
