// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"cmp"
	"errors"
	"fmt"
)

// The classes of errors of a pod's allocation. The errors of this package match them with
// errors.Is.
var (
	// ErrMalformed: the annotation is invalid. All errors of decoding match it.
	ErrMalformed = errors.New("malformed annotation")
	// ErrNoAllocation: the pod has no allocation. It is not bound, or was not bound by the device
	// scheduler.
	ErrNoAllocation = errors.New("no allocation")
	// ErrForeignAllocation: the allocation is for another node or another pod.
	ErrForeignAllocation = errors.New("allocation of another node or pod")
)

// Error is an error in an annotation. It matches ErrMalformed.
type Error struct {
	// Field is the path of the field, such as runningcontainer["main"].requests["gpu/a/cards"]. It
	// is empty for all of the value.
	Field string
	// Problem describes the error, and Fix the next step.
	Problem, Fix string
	// Offset is the position of the field in the decoded value, in bytes. It is 0 for all of the
	// value, and for a part that the pod lacks.
	Offset int

	key string // of the annotation; empty means Annotation
}

// Error returns field, problem and next step.
func (e *Error) Error() string {
	where := "annotation " + cmp.Or(e.key, Annotation)
	if e.Field != "" {
		where += ": " + e.Field
	}
	return fmt.Sprintf("%s: %s; %s", where, e.Problem, e.Fix)
}

// Is reports whether target is ErrMalformed.
func (e *Error) Is(target error) bool { return target == ErrMalformed }

// quote returns s for an error's text, shortened if it is long. s may be any text.
func quote(s string) string {
	const most = 80
	if len(s) > most {
		return fmt.Sprintf("%q…", s[:most])
	}
	return fmt.Sprintf("%q", s)
}

// fieldPath returns the path of a field of an object.
func fieldPath(object, field string) string {
	if object == "" {
		return field
	}
	return object + "." + field
}

// entryPath returns the path of an entry of a map.
func entryPath(object, key string) string { return object + "[" + quote(key) + "]" }
