// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"cmp"
	"errors"
	"fmt"
)

// What can be wrong with a pod's allocation. The errors of this package match them with errors.Is.
var (
	// ErrMalformed: the annotation cannot be read. All errors of decoding match it.
	ErrMalformed = errors.New("malformed annotation")
	// ErrNoAllocation: the pod has no allocation. It is not bound, or was not bound by the device
	// scheduler.
	ErrNoAllocation = errors.New("no allocation")
	// ErrForeignAllocation: the allocation was made for another node or another pod.
	ErrForeignAllocation = errors.New("allocation of another node or pod")
)

// Error is what is wrong with an annotation. It matches ErrMalformed.
type Error struct {
	// Field is the path of the field, such as runningcontainer["main"].requests["gpu/a/cards"]. It
	// is empty for all of the value.
	Field string
	// Problem is what is wrong with it, and Fix what to do about it.
	Problem, Fix string
	// Offset is the byte of the value where that stands, when a value was read. It is 0 for all of
	// the value, and for what is missing in the pod.
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

// quote returns s for an error's text, cut when it is long: it may be anything.
func quote(s string) string {
	const most = 80
	if len(s) > most {
		return fmt.Sprintf("%q…", s[:most])
	}
	return fmt.Sprintf("%q", s)
}

// in returns the path of a field of an object.
func in(object, field string) string {
	if object == "" {
		return field
	}
	return object + "." + field
}

// at returns the path of an entry of a map.
func at(object, key string) string { return object + "[" + quote(key) + "]" }
