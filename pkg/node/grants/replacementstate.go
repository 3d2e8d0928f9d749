// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

// ReplacementState is how far the replacement of a container's devices is. It follows from the
// allocation in the checkpoint, so that another process goes on where this one ends.
//
//	+---------+         +-----------+         +---------+
//	|         | ------> |           | ------> |         |
//	| Settled |         | Requested |         | Refused |
//	|         |         |           |         |         |
//	+---------+         +-----------+         +---------+
//	     ^                 |  ^   |              |   |
//	     |                 v  |   |              |   |
//	     |              +-----------+            |   |
//	     |              | Withdrawn | <----------+   |
//	     |              +-----------+                |
//	     |                 |      |                  |
//	     |                 v      v                  |
//	     |              +-----------+                |
//	     +------------- |  Leaving  | <--------------+
//	                    +-----------+
//
// It goes from one to another when
//
//	Settled    the node requests other devices                         -> Requested
//	Requested  the scheduler's answer cannot be used                   -> Refused
//	Requested  an answer is taken                                      -> Leaving
//	Requested  the node withdraws the request                          -> Withdrawn
//	Refused    a later answer is taken                                 -> Leaving
//	Refused    the node withdraws the request                          -> Withdrawn
//	Withdrawn  the node requests other devices                         -> Requested
//	Withdrawn  an answer that was on its way is taken                  -> Leaving
//	Leaving    the container has stopped using its previous devices    -> Settled
//	Leaving    it has, and an answer to a refused one is on its way    -> Withdrawn
//	Leaving    the node requests other devices, as these failed, too   -> Requested
type ReplacementState string

// The states.
const (
	// Settled: the container has its devices, and no others are requested.
	Settled ReplacementState = "settled"
	// Requested: the node requests other devices for the container.
	Requested ReplacementState = "requested"
	// RefusedAnswer: it does so, and cannot use those of the scheduler's answer.
	RefusedAnswer ReplacementState = "refused"
	// Withdrawn: the node requests them no more. An answer that is on its way counts all the same.
	Withdrawn ReplacementState = "withdrawn"
	// Leaving: the container has other devices, and may still use the previous ones.
	Leaving ReplacementState = "leaving"
)

// Replacement returns the state of the replacement of a container's devices.
func (a *Allocation) Replacement(container string) ReplacementState {
	pending, isPending := a.Pending[container]
	_, leaving := a.Leaving[container]
	switch {
	case isPending && !pending.Withdrawn && a.Refused > a.Generation:
		return RefusedAnswer
	case isPending && !pending.Withdrawn:
		return Requested
	case leaving:
		return Leaving
	case isPending:
		return Withdrawn
	default:
		return Settled
	}
}

// Requests reports whether the node requests other devices for a container of the pod.
func (a *Allocation) Requests() bool {
	for name := range a.Pending {
		if state := a.Replacement(name); state == Requested || state == RefusedAnswer {
			return true
		}
	}
	return false
}
