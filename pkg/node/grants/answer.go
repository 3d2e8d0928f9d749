// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package grants

// AnswerState is what became of the scheduler's answer to the node's request for other devices for
// a pod. A request begins as AnswerAbsent and ends as AnswerTaken. The scheduler may answer again
// what was refused, with a higher generation.
type AnswerState string

// The states.
const (
	// AnswerAbsent means that the pod has no allocation of a higher generation.
	AnswerAbsent AnswerState = "absent"
	// AnswerUnverified means that the pod's allocation or its seal cannot be read or verified: its
	// generation is not known.
	AnswerUnverified AnswerState = "unverified"
	// AnswerRefused means that the scheduler has sealed an allocation of a higher generation, which
	// gives devices that the pod cannot have on this node.
	AnswerRefused AnswerState = "refused"
	// AnswerTaken means that the pod has the devices of the answer.
	AnswerTaken AnswerState = "taken"
)

// Answer is the scheduler's answer for one pod.
type Answer struct {
	State AnswerState
	// Generation is the highest that the scheduler has sealed for the pod, as far as is known.
	Generation int64
	// Allocation is what the pod has now.
	Allocation Allocation
	// Reason is why the answer was not taken, where State is AnswerUnverified or AnswerRefused.
	Reason error
}
