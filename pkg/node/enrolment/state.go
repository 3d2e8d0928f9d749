// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolment

// state is how far a node's enrolment or its leave has come, as the journal on disk has it.
//
//	                                        ┌─────────────┬────────────┐
//	                                        ▼             │            │
//	absent ──► enrolling ──► switching ──► enrolled ──► repairing ──► rewriting
//	  ▲            │                        ▲   ▲            ▲
//	  │            └────────────────────────┘   └► vacating ─┘
//	  └─ leaving ◄─ each other one
//
// A process may end in any of them. Enrol then continues to enrolled, and Leave to absent.
// A node goes from one state to another when
//
//	Absent     enrol finds no fact that blocks                    -> Enrolling
//	Enrolling  kubecri is registered with NRI                     -> Enrolled
//	Enrolling  enrol is about to write files of the kubelet       -> Switching
//	Enrolling  enrol fails, or leave runs                         -> Leaving
//	Switching  the kubelet calls kubecri                          -> Enrolled
//	Switching  enrol fails, or leave runs                         -> Leaving
//	Enrolled   enrol finds that the kubelet's files were changed  -> Repairing
//	Enrolled   leave cordons the node                             -> Vacating
//	Enrolled   leave runs on a node that others have cordoned     -> Leaving
//	Repairing  enrol is about to write files of the kubelet       -> Rewriting
//	Repairing  enrol fails                                        -> Enrolled
//	Repairing  leave runs                                         -> Leaving
//	Rewriting  the kubelet calls kubecri                          -> Enrolled
//	Rewriting  enrol fails and restores the kubelet's files       -> Enrolled
//	Rewriting  leave runs                                         -> Leaving
//	Vacating   leave is refused                                   -> Enrolled
//	Vacating   leave was cut off, and enrol runs                  -> Enrolled
//	Vacating   enrol finds that the kubelet's files were changed  -> Repairing
//	Vacating   leave finds no pod with devices                    -> Leaving
//	Leaving    everything is as it was before                     -> Absent
//
// Two fields of the journal are independent of the state, except that they tell vacating from
// enrolled and switching from enrolling: Cordoned, by which enrol and leave uncordon the node at
// their end, and Switched, by which leave restarts the kubelet.
type state int

const (
	absent    state = iota // there is no journal
	enrolling              // kubecri is being installed; the kubelet's files are as they were
	switching              // the same; the kubelet's files may have kubecri's endpoint
	enrolled
	repairing // enrolled before; the kubelet's files are as enrol found them
	rewriting // the same; the kubelet's files may have kubecri's endpoint again
	vacating  // enrolled; leave has cordoned the node and has changed nothing else
	leaving   // kubecri is being removed
)

// String returns the state's name.
func (s state) String() string {
	return [...]string{
		"absent", "enrolling", "switching", "enrolled", "repairing", "rewriting", "vacating", "leaving",
	}[s]
}

// state returns the state of the node's enrolment. j is nil if there is no journal.
func (j *journal) state() state {
	switch {
	case j == nil:
		return absent
	case j.Phase == phaseLeaving:
		return leaving
	case j.Phase == phaseEnrolled && j.Cordoned:
		return vacating
	case j.Phase == phaseEnrolled:
		return enrolled
	case j.Repair && j.Unwritten:
		return repairing
	case j.Repair:
		return rewriting
	case j.Switched:
		return switching
	default:
		return enrolling
	}
}

// repairs reports whether an enrolment in this state repairs one that was complete.
func (s state) repairs() bool { return s == repairing || s == rewriting }
