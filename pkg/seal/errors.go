// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"errors"
	"fmt"
)

// Reason says why a seal is not valid. It is a label of metrics.
type Reason string

// The reasons.
const (
	// Missing: the pod has no seal.
	Missing Reason = "missing"
	// Malformed: the text is not a seal.
	Malformed Reason = "malformed"
	// UnknownKey: the seal names a key that the verifier does not have.
	UnknownKey Reason = "unknown_key"
	// BadSignature: the key that the seal names did not sign it.
	BadSignature Reason = "bad_signature"
	// OtherPod, OtherNode, OtherAllocation: the seal is for another one.
	OtherPod        Reason = "other_pod"
	OtherNode       Reason = "other_node"
	OtherAllocation Reason = "other_allocation"
)

// Reasons lists all reasons.
var Reasons = []Reason{Missing, Malformed, UnknownKey, BadSignature, OtherPod, OtherNode, OtherAllocation}

// createAgain is the next step for a pod that cannot get a valid seal.
const createAgain = "delete the pod and create it again, without spec.nodeName and for the device scheduler"

// Error is the reason why a seal is not valid.
type Error struct {
	Reason Reason
	// Pod is the pod's namespace and name with a slash between them, or empty if the caller passed
	// only the text of the seal.
	Pod string
	// Problem describes the error of the seal, and Fix the next step.
	Problem, Fix string
}

// Error returns pod, problem and next step.
func (e *Error) Error() string {
	where := "annotation " + Annotation
	if e.Pod != "" {
		where += fmt.Sprintf(" of pod %q", e.Pod)
	}
	return fmt.Sprintf("%s: %s; %s", where, e.Problem, e.Fix)
}

// ReasonOf returns the reason of an error of Verify or Open, or "" for any other error and for nil.
func ReasonOf(err error) Reason {
	var invalid *Error
	if errors.As(err, &invalid) {
		return invalid.Reason
	}
	return ""
}

// quote returns s for an error's text, shortened if it is long. s may be any text.
func quote(s string) string {
	const most = 80
	if len(s) > most {
		return fmt.Sprintf("%q…", s[:most])
	}
	return fmt.Sprintf("%q", s)
}
