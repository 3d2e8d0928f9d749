// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/kubedevice/kubedevice/pkg/sdk/device"
)

// AttributesAnnotation is the key of the annotation in which a node publishes the attributes of
// devices of its inventory. A node without attributes has no such annotation. They are for people
// and tools. Of them, the scheduler reads productName for pods that choose GPUs by their models.
//
// The value is a JSON object of the devices' paths as in [UnhealthyDevice], each with an object of
// its attributes, as [device.Attribute] writes them:
//
//	{"gpu/GPU-7f3a":{"productName":"NVIDIA H100","cudaComputeCapability":{"version":"9.0.0"}}}
const AttributesAnnotation = "KubeDevice/Attributes"

// MaxAttributesBytes is the largest value of [AttributesAnnotation]: some 100 GPUs. A node does not
// publish the attributes of more devices.
const MaxAttributesBytes = 64 << 10

// The limits of attributes are those of devices in a ResourceSlice, see k8s.io/api/resource/v1.
const (
	// MaxAttributes is how many attributes and resources together a device may have.
	MaxAttributes = 32
	// MaxAttributeBytes is the longest string or version.
	MaxAttributeBytes = 64

	maxAttributeName   = 32
	maxAttributeDomain = 63
)

var (
	attributeName   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	attributeDomain = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	// attributeVersion is the grammar of Semantic Versioning 2.0.0.
	attributeVersion = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)` +
		`(-(0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)(\.(0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*))*)?` +
		`(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$`)
)

// CheckAttribute returns why an attribute is beyond the limits of [device.Attributes], or nil.
func CheckAttribute(name string, value device.Attribute) error {
	domain, identifier, qualified := strings.Cut(name, "/")
	if !qualified {
		domain, identifier = "", name
	}
	if len(identifier) > maxAttributeName || !attributeName.MatchString(identifier) ||
		qualified && (len(domain) > maxAttributeDomain || !attributeDomain.MatchString(domain)) {
		return fmt.Errorf("attribute %.120q: the name must be a C identifier of at most %d characters, with a DNS "+
			"subdomain of at most %d and a slash before it or without", name, maxAttributeName, maxAttributeDomain)
	}
	text := value.String()
	switch value.Kind() {
	case device.IntAttribute, device.BoolAttribute:
		return nil
	case device.StringAttribute:
		if text == "" {
			return fmt.Errorf("attribute %s: the string is empty; leave out what is not known", name)
		}
		if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return fmt.Errorf("attribute %s: %.120q has characters that cannot be printed", name, text)
		}
	case device.VersionAttribute:
		if len(text) <= MaxAttributeBytes && !attributeVersion.MatchString(text) {
			return fmt.Errorf("attribute %s: %q is no version of Semantic Versioning, such as 9.0.0", name, text)
		}
	default:
		return fmt.Errorf("attribute %s: it has no value; use a constructor of the SDK, or leave it out", name)
	}
	if len(text) > MaxAttributeBytes {
		return fmt.Errorf("attribute %s: %.80q… has %d bytes, more than %d", name, text, len(text), MaxAttributeBytes)
	}
	return nil
}

// EncodeAttributes writes the annotation KubeDevice/Attributes for devices by their paths, in the
// order of the paths. A device whose attributes do not fit into limit bytes with those before it is
// left out, and left has its path. The value is empty for no attributes. The same attributes and
// limit have the same value.
func EncodeAttributes(devices map[string]device.Attributes, limit int) (value string, left []string) {
	var text strings.Builder
	limit = min(limit, MaxAttributesBytes)
	for _, path := range slices.Sorted(maps.Keys(devices)) {
		if len(devices[path]) == 0 {
			continue
		}
		key, keyErr := encode(path)
		entry, err := encode(devices[path])
		if errors.Join(keyErr, err) != nil || text.Len()+len(key)+len(entry)+len("{:}") > limit {
			left = append(left, path)
			continue
		}
		text.WriteString(map[bool]string{true: "{", false: ","}[text.Len() == 0])
		text.WriteString(key + ":" + entry)
	}
	if text.Len() == 0 {
		return "", left
	}
	return text.String() + "}", left
}

// DecodeAttributes reads the annotation KubeDevice/Attributes. It ignores attributes whose values
// are of unknown types, so that nodes may be newer than their readers. Anything else beyond the
// limits is an error. An empty value has no devices.
func DecodeAttributes(value string) (map[string]device.Attributes, error) {
	if value == "" {
		return nil, nil
	}
	if len(value) > MaxAttributesBytes {
		return nil, fmt.Errorf("annotation %s has %d bytes, more than %d", AttributesAnnotation, len(value),
			MaxAttributesBytes)
	}
	var raw map[string]map[string]json.RawMessage
	if err := json.Unmarshal([]byte(value), &raw); err != nil {
		return nil, fmt.Errorf("annotation %s: %w", AttributesAnnotation, err)
	}
	devices := make(map[string]device.Attributes, len(raw))
	for path, attributes := range raw {
		if len(attributes) > MaxAttributes {
			return nil, fmt.Errorf("annotation %s: device %.120q has %d attributes, more than %d",
				AttributesAnnotation, path, len(attributes), MaxAttributes)
		}
		known := device.Attributes{}
		for name, text := range attributes {
			var attribute device.Attribute
			err := attribute.UnmarshalJSON(text)
			if errors.Is(err, device.ErrUnknownAttribute) {
				continue
			}
			if err == nil {
				err = CheckAttribute(name, attribute)
			}
			if err != nil {
				return nil, fmt.Errorf("annotation %s: device %.120q: %w", AttributesAnnotation, path, err)
			}
			known[name] = attribute
		}
		if len(known) > 0 {
			devices[path] = known
		}
	}
	return devices, nil
}
