// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package policing

import "time"

// State is where a container stands with its share of a device. It goes
//
//	Within   a reading shows more than the share             -> Over
//	Over     the grace period is over                        -> Warned
//	Over     a reading shows no more than the share          -> Within
//	Over     its use is unknown                              -> Within
//	Over     readings are missing                            -> Within
//	Warned   a later reading shows more, the policy is End   -> Ended
//	Warned   a later reading shows more, the policy is Evict -> Evicted
//	Warned   the pod cannot be evicted                       -> Ended
//	Warned   a reading shows no more than the share          -> Within
//	Evicted  it goes on for too long                         -> Ended
//	Evicted  a reading shows no more than the share          -> Within
//
// A container that cannot be ended stays where it is, and the next reading that shows more tries
// again. With the policy Ignore, one stays Warned. A container that a reading does not list any
// more is forgotten.
type State int

// The states.
const (
	Within  State = iota // it uses no more than its share, as far as is known
	Over                 // it uses more, for less than the grace period
	Warned               // its pod has the event
	Evicted              // its pod is evicted
	Ended                // it is ended
)

// String returns the state's name.
func (s State) String() string {
	return [...]string{"within", "over", "warned", "evicted", "ended"}[s]
}

// watched is a container that uses more than its share of a device.
type watched struct {
	state State
	since time.Time // of the first reading that showed it
	at    time.Time // of the reading by which it was evicted
	// acting says that it is being ended, or its pod evicted.
	acting bool
	// misspelled says that the event about a wrong annotation is written.
	misspelled bool
}

// exceeds notes that a reading at a time shows more than the share, and reports what is due: the
// event, or what the policy says.
func (w *watched) exceeds(at time.Time, grace time.Duration) (warn, act bool) {
	switch w.state {
	case Within:
		w.state, w.since = Over, at
	case Over:
		if at.Sub(w.since) >= grace {
			w.state = Warned
			return true, false
		}
	case Warned:
		return false, true
	case Evicted:
		return false, at.Sub(w.at) >= evictionGrace
	}
	return false, false
}
