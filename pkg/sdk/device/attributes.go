// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package device

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// Attributed is implemented by a plugin that describes its devices: their model, their driver's
// version, their place in the machine. Attributes are for people and for tools. What pods can
// request is what [Device.UpdateNodeInfo] says.
type Attributed interface {
	// DeviceAttributes returns the attributes of devices, each device by what the names of its
	// resources have in common, as in [Health]. The host calls it after each successful
	// UpdateNodeInfo, within the same time limit, and one call at a time unless the plugin is
	// [ConcurrentSafe]. It copies the answer before the call ends.
	//
	// An attribute that is not known is absent: it is not 0, -1 or empty. Entries of devices that
	// the plugin does not have are ignored. An attribute beyond the limits of [Attributes] is left
	// out alone, and /readyz names it. After an error, the last attributes stay.
	DeviceAttributes() (map[string]Attributes, error)
}

// Attributes are the attributes of one device, by name. Names, types and limits are those of the
// devices in a ResourceSlice of Kubernetes: a name is a C identifier of at most 32 characters,
// with a DNS subdomain of at most 63 and a slash before it where the attribute is another domain's,
// such as resource.kubernetes.io/pciBusID. A device has at most 32 attributes and resources.
type Attributes map[string]Attribute

// Attribute is the value of an attribute: a string, a whole number, a boolean or a version. Values
// can be compared. The zero value is no attribute.
//
// In JSON, a version is an object {"version":"9.0.0"}. The other types are JSON's own.
type Attribute struct {
	kind   AttributeKind
	text   string // of strings and versions
	number int64  // of whole numbers; 1 for true
}

// AttributeKind is the type of an attribute.
type AttributeKind string

// The types of attributes. The zero Attribute has none of them.
const (
	StringAttribute  AttributeKind = "string"
	IntAttribute     AttributeKind = "int"
	BoolAttribute    AttributeKind = "bool"
	VersionAttribute AttributeKind = "version"
)

// ErrUnknownAttribute is the error of UnmarshalJSON for a value that is of no known type. A newer
// host or plugin may have written it.
var ErrUnknownAttribute = errors.New("unknown type of attribute")

// String returns an attribute of printable characters, in UTF-8 at most 64 bytes.
func String(value string) Attribute { return Attribute{kind: StringAttribute, text: value} }

// Int returns an attribute that is a whole number.
func Int(value int64) Attribute { return Attribute{kind: IntAttribute, number: value} }

// Bool returns an attribute that is true or false.
func Bool(value bool) Attribute {
	if value {
		return Attribute{kind: BoolAttribute, number: 1}
	}
	return Attribute{kind: BoolAttribute}
}

// Version returns an attribute that is a version of Semantic Versioning 2.0.0, such as 9.0.0, of at
// most 64 bytes.
func Version(value string) Attribute { return Attribute{kind: VersionAttribute, text: value} }

// Kind returns the type, which is empty for the zero value.
func (a Attribute) Kind() AttributeKind { return a.kind }

// String returns the value as text: a number in decimal, a boolean as true or false.
func (a Attribute) String() string {
	switch a.kind {
	case IntAttribute:
		return strconv.FormatInt(a.number, 10)
	case BoolAttribute:
		return strconv.FormatBool(a.number != 0)
	}
	return a.text
}

// versionJSON is a version in JSON.
type versionJSON struct {
	Version *string `json:"version"`
}

// MarshalJSON implements json.Marshaler. The zero value is null.
func (a Attribute) MarshalJSON() ([]byte, error) {
	switch a.kind {
	case StringAttribute:
		return json.Marshal(a.text)
	case VersionAttribute:
		return json.Marshal(versionJSON{&a.text})
	case IntAttribute, BoolAttribute:
		return []byte(a.String()), nil
	}
	return []byte("null"), nil
}

// UnmarshalJSON implements json.Unmarshaler. A value that is of no known type is an
// ErrUnknownAttribute, and a is not changed.
func (a *Attribute) UnmarshalJSON(data []byte) error {
	var text string
	var number int64
	var truth bool
	var version versionJSON
	switch {
	case string(data) == "null":
	case json.Unmarshal(data, &text) == nil:
		*a = String(text)
		return nil
	case json.Unmarshal(data, &number) == nil:
		*a = Int(number)
		return nil
	case json.Unmarshal(data, &truth) == nil:
		*a = Bool(truth)
		return nil
	case json.Unmarshal(data, &version) == nil && version.Version != nil:
		*a = Version(*version.Version)
		return nil
	}
	return fmt.Errorf("%w: %.64s", ErrUnknownAttribute, data)
}
