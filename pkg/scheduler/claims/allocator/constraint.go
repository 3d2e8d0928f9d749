// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kubedevice/kubedevice/pkg/scheduler/claims/pool"
)

// value is the value of an attribute, comparable.
type value struct {
	kind byte // 0 for none
	text string
	n    int64
}

// The kinds of values. One of an unknown kind is equal to none, also not to itself.
const (
	kindText    = 's'
	kindVersion = 'v'
	kindInteger = 'i'
	kindBoolean = 'b'
	kindUnknown = '?'
)

// attribute returns the value of an attribute of a device. A driver may leave out its own domain.
func attribute(device *pool.Device, name resourceapi.FullyQualifiedName) value {
	found, ok := device.Spec.Attributes[resourceapi.QualifiedName(name)]
	if !ok {
		domain, id, qualified := strings.Cut(string(name), "/")
		if !qualified || domain != device.Driver() {
			return value{}
		}
		if found, ok = device.Spec.Attributes[resourceapi.QualifiedName(id)]; !ok {
			return value{}
		}
	}
	switch {
	case found.StringValue != nil:
		return value{kind: kindText, text: *found.StringValue}
	case found.IntValue != nil:
		return value{kind: kindInteger, n: *found.IntValue}
	case found.BoolValue != nil:
		v := value{kind: kindBoolean}
		if *found.BoolValue {
			v.n = 1
		}
		return v
	case found.VersionValue != nil:
		return value{kind: kindVersion, text: *found.VersionValue}
	}
	return value{kind: kindUnknown}
}

// tracked are the values of the devices that were chosen under one constraint, in order.
type tracked []value

// allows reports whether a device with this value may be added.
func (t tracked) allows(c *constraint, v value) bool {
	switch {
	case v.kind == 0:
		return false
	case len(t) == 0:
		return true
	case v.kind == kindUnknown:
		return false
	case !c.distinct:
		return t[0] == v
	}
	for _, other := range t {
		if other == v {
			return false
		}
	}
	return true
}
