// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resource parses the names of resources and lifts requests to the levels of topology that
// a node has. All functions are pure and safe for concurrent use.
package resource

import (
	"fmt"
	"strings"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// IsGroupResourceName reports whether name is a device resource, which the group scheduler places:
// one that begins with types.DeviceGroupPrefix.
func IsGroupResourceName(name types.ResourceName) bool {
	return strings.HasPrefix(string(name), types.DeviceGroupPrefix)
}

// PrecheckedResource reports whether name is a plain count, which Kubernetes itself checks before
// it calls any device scheduler.
func PrecheckedResource(name types.ResourceName) bool {
	return !IsGroupResourceName(name)
}

// IsEnumResource reports whether name is a bit mask, which is met when any requested bit is there:
// one whose last segment begins with "enum", in any case.
func IsEnumResource(name types.ResourceName) bool {
	const enum = "enum"
	last := name[strings.LastIndexByte(string(name), '/')+1:]
	return len(last) >= len(enum) && strings.EqualFold(string(last[:len(enum)]), enum)
}

// AddGroupResource sets list["resource/group/"+key] to val. list must not be nil.
func AddGroupResource(list types.ResourceList, key string, val int64) {
	types.AddGroupResource(list, key, val)
}

// InsufficientResourceError is the reason that a node has too little of a resource. It is a
// devicescheduler.PredicateFailureReason. Quantities are in base units.
type InsufficientResourceError struct {
	ResourceName types.ResourceName
	Requested    int64
	Used         int64
	Capacity     int64
}

// NewInsufficientResourceError returns the reason that requested units of name do not fit next
// to the used ones in capacity.
func NewInsufficientResourceError(name types.ResourceName, requested, used, capacity int64) *InsufficientResourceError {
	return &InsufficientResourceError{ResourceName: name, Requested: requested, Used: used, Capacity: capacity}
}

// Error returns the reason with its quantities.
func (e *InsufficientResourceError) Error() string {
	return fmt.Sprintf("%s: requested %d, used %d, capacity %d", e.GetReason(), e.Requested, e.Used, e.Capacity)
}

// GetReason returns "Insufficient <name>".
func (e *InsufficientResourceError) GetReason() string {
	return fmt.Sprintf("Insufficient %s", e.ResourceName)
}

// GetInfo returns the resource and its quantities.
func (e *InsufficientResourceError) GetInfo() (name types.ResourceName, requested, used, capacity int64) {
	return e.ResourceName, e.Requested, e.Used, e.Capacity
}
